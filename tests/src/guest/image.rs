//! The guest's kernel and initramfs, made of the packages of this machine's own Debian release, so that programs built here
//! run there too. Only apt is needed: it finds and checks the packages as for an empty system, they are unpacked without
//! being installed, and of the kernel's modules only the needed ones stay. Kept in the user's cache folder under a key of
//! everything it is made of.

use super::Unavailable;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the cases use, and what apt does not add by itself because every Debian has it.
const PACKAGES: &str = "linux-image-amd64 base-files bash coreutils findutils gawk grep sed util-linux mount procps psmisc \
     kmod udev iproute2 iputils-ping jq fio open-iscsi nvme-cli sg3-utils multipath-tools xfsprogs e2fsprogs libiscsi-bin";
/// Modules that are in the image, with all they depend on. Those that a kernel has built in, or not at all, are left out.
const MODULES: &str = "virtio_pci virtio_net virtio_rng 9p 9pnet_virtio configfs nvme_tcp iscsi_tcp sd_mod sg scsi_dh_alua \
     dm_multipath dm_round_robin dm_service_time dm_queue_length null_blk loop xfs ext4 veth sch_netem crc32c_generic \
     crc32c_intel";
/// Not unpacked: nothing that runs in the guest reads it.
const LEFT_OUT: [&str; 6] = [
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./usr/share/perl",
    "./usr/lib/python3*",
    "./usr/lib/*/perl*",
];
/// Changed with what the code below makes of all this, so that older images are not taken for it.
const FORM: &str = "2";
/// Process 1 of the guest.
const INIT: &str = include_str!("init.sh");

#[derive(Debug)]
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    folder: PathBuf,
}

impl Image {
    /// From the cache, or made and put there.
    pub(super) fn cached() -> Result<Self, Unavailable> {
        let folder = cache_folder()?.join(format!("guest-{}", key()));
        if !folder.is_dir() {
            make(&folder).map_err(|why| Unavailable(format!("the guest image cannot be made: {why}")))?;
        }
        Ok(Self { kernel: folder.join("vmlinuz"), initramfs: folder.join("initramfs"), folder })
    }

    /// Whether KVM works, found out by `trial` once per start of this machine.
    pub(super) fn kvm_verdict(&self, trial: impl FnOnce(&Self) -> bool) -> bool {
        if !Path::new("/dev/kvm").exists() {
            return false;
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let file = self.folder.join("kvm");
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        match known.strip_prefix(&boot) {
            Some("works") => true,
            Some("hangs") => false,
            _ => {
                let works = trial(self);
                // Only costs another trial if it cannot be kept.
                let _ = std::fs::write(&file, format!("{boot}{}", if works { "works" } else { "hangs" }));
                works
            }
        }
    }
}

/// Makes the image in a folder beside and renames it, so that there is a whole one or none.
#[allow(clippy::print_stdout, reason = "says what the minute is spent on")]
fn make(folder: &Path) -> Result<(), String> {
    println!("making the guest image {} from Debian's packages", folder.display());
    let parent = folder.parent().expect("the cache folder has a parent");
    std::fs::create_dir_all(parent).map_err(text)?;
    let work = tempfile::tempdir_in(parent).map_err(text)?;
    let (root, result) = (work.path().join("root"), work.path().join("result"));
    std::fs::create_dir_all(&root).map_err(text)?;
    std::fs::create_dir_all(&result).map_err(text)?;

    let packages = download(&work.path().join("packages"))?;
    unpack(&packages, &root)?;
    std::fs::rename(kernel_of(&root)?, result.join("vmlinuz")).map_err(text)?;
    std::fs::remove_dir_all(root.join("boot")).map_err(text)?;
    keep_modules(&root)?;
    add_init(&root)?;
    pack(&root, &result.join("initramfs"))?;
    match std::fs::rename(&result, folder) {
        // Another run was faster.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => renamed.map_err(text),
    }
}

/// Downloads the packages and all they depend on, as for an empty system, and lists the files.
fn download(folder: &Path) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir_all(folder.join("partial")).map_err(text)?;
    std::fs::write(folder.join("status"), "").map_err(text)?;
    if rustix::process::geteuid().is_root() {
        // An old list only means older packages, as long as they are still there.
        let _ = Command::new("apt-get").args(["update", "-qq"]).status();
    }
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-y", "-qq", "--no-install-recommends", "--download-only"]);
    for (option, value) in [
        ("Dir::State::status", folder.join("status")),
        ("Dir::Cache::archives", folder.to_owned()),
        ("APT::Sandbox::User", "root".into()),
        ("Debug::NoLocking", "1".into()),
    ] {
        apt.arg("-o").arg(format!("{option}={}", value.display()));
    }
    run(apt.args(PACKAGES.split_whitespace()).stdout(Stdio::null()))?;
    let files = std::fs::read_dir(folder).map_err(text)?.filter_map(Result::ok).map(|entry| entry.path());
    let mut packages: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|e| e == "deb")).collect();
    packages.sort();
    Ok(packages)
}

fn unpack(packages: &[PathBuf], root: &Path) -> Result<(), String> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        std::fs::create_dir_all(root.join("usr").join(name)).map_err(text)?;
        symlink(Path::new("usr").join(name), root.join(name)).map_err(text)?;
    }
    for package in packages {
        let mut open = Command::new("dpkg-deb");
        let mut open = open.arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn().map_err(text)?;
        let archive = open.stdout.take().expect("it is piped");
        let mut tar = Command::new("tar");
        tar.args(["-x", "--keep-directory-symlink", "-C"]).arg(root);
        run(tar.args(LEFT_OUT.map(|name| format!("--exclude={name}"))).stdin(archive))?;
        if !open.wait().map_err(text)?.success() {
            return Err(format!("dpkg-deb cannot open {}", package.display()));
        }
    }
    Ok(())
}

fn kernel_of(root: &Path) -> Result<PathBuf, String> {
    let names = std::fs::read_dir(root.join("boot")).map_err(text)?.filter_map(Result::ok);
    names
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
        .ok_or_else(|| "the kernel package has no kernel".to_owned())
}

/// Removes the modules that no wanted one needs.
fn keep_modules(root: &Path) -> Result<(), String> {
    let folder = std::fs::read_dir(root.join("usr/lib/modules")).map_err(text)?.filter_map(Result::ok).next();
    let folder = folder.ok_or("the kernel package has no modules")?.path();
    let version = folder.file_name().expect("an entry has a name").to_owned();
    let depmod = |root: &Path| run(Command::new("depmod").arg("-b").arg(root).arg(&version));
    depmod(root)?;
    let list = std::fs::read_to_string(folder.join("modules.dep")).map_err(text)?;
    let needed = closure(&list, &MODULES.split_whitespace().collect());
    for file in list.lines().filter_map(|line| line.split(':').next()).filter(|file| !needed.contains(file)) {
        std::fs::remove_file(folder.join(file)).map_err(text)?;
    }
    depmod(root)
}

/// The files of these modules and of all they depend on. A line of `modules.dep` is a file, a colon, and the files of
/// everything that it needs.
fn closure<'a>(list: &'a str, wanted: &BTreeSet<&str>) -> BTreeSet<&'a str> {
    let module = |file: &str| {
        let name = file.rsplit('/').next().unwrap_or(file);
        name.split(".ko").next().unwrap_or(name).replace('-', "_")
    };
    let lines: BTreeMap<&str, &str> = list.lines().filter_map(|line| line.split_once(':')).collect();
    let is_wanted = |file: &str| wanted.contains(module(file).as_str());
    let kept = lines.iter().filter(|(file, _)| is_wanted(file));
    kept.flat_map(|(file, needs)| needs.split_whitespace().chain([*file])).collect()
}

fn add_init(root: &Path) -> Result<(), String> {
    for name in ["proc", "sys", "dev", "run", "tmp", "host", "mnt", "root", "etc/modprobe.d"] {
        std::fs::create_dir_all(root.join(name)).map_err(text)?;
    }
    // What the package's installation would do.
    symlink("gawk", root.join("usr/bin/awk")).map_err(text)?;
    std::fs::write(root.join("etc/modprobe.d/guest.conf"), "options null_blk nr_devices=0\n").map_err(text)?;
    std::fs::write(root.join("init"), INIT.replace("@MODULES@", MODULES)).map_err(text)?;
    std::fs::set_permissions(root.join("init"), std::fs::Permissions::from_mode(0o755)).map_err(text)
}

/// As the kernel wants it: a cpio archive; not compressed, since it is read once per boot from memory.
fn pack(root: &Path, file: &Path) -> Result<(), String> {
    let names = Command::new("find").arg(".").current_dir(root).output().map_err(text)?.stdout;
    let archive = std::fs::File::create(file).map_err(text)?;
    let mut cpio = Command::new("cpio");
    cpio.args(["-o", "-H", "newc", "--quiet", "-R", "0:0"]).current_dir(root).stdin(Stdio::piped()).stdout(archive);
    let mut child = cpio.spawn().map_err(|error| format!("cpio: {error}"))?;
    // Dropped at the end of the statement, which ends the list.
    child.stdin.take().expect("it is piped").write_all(&names).map_err(text)?;
    if child.wait().map_err(text)?.success() { Ok(()) } else { Err("cpio failed".to_owned()) }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

/// Of everything the image is made of but the versions of the packages.
fn key() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release.lines().find(|line| line.starts_with("VERSION_CODENAME=")).unwrap_or("");
    let parts = [release, PACKAGES, MODULES, INIT, FORM].join("\n");
    format!("{:08x}", crc32c::crc32c(parts.as_bytes()))
}

fn cache_folder() -> Result<PathBuf, Unavailable> {
    let named = |variable: &str| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    cache
        .map(|folder| folder.join("platter"))
        .ok_or_else(|| Unavailable("neither XDG_CACHE_HOME nor HOME is set".into()))
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "kernel/fs/xfs/xfs.ko: kernel/lib/libcrc32c.ko\nkernel/lib/libcrc32c.ko:\n\
         kernel/drivers/nvme/host/nvme-tcp.ko.xz: kernel/drivers/nvme/host/nvme-core.ko.xz\n\
         kernel/drivers/nvme/host/nvme-core.ko.xz:\nkernel/sound/soundcore.ko:\n";

    #[test]
    fn modules_stay_with_what_they_need() {
        let kept = closure(LIST, &BTreeSet::from(["xfs", "nvme_tcp", "absent"]));
        let expected = [
            "kernel/drivers/nvme/host/nvme-core.ko.xz",
            "kernel/drivers/nvme/host/nvme-tcp.ko.xz",
            "kernel/fs/xfs/xfs.ko",
            "kernel/lib/libcrc32c.ko",
        ];
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn init_gets_the_list_of_modules() {
        assert!(INIT.starts_with("#!/bin/bash\n") && INIT.contains("@MODULES@"));
    }
}
