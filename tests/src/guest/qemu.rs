//! QEMU: a PC without a disk, whose kernel and initramfs come from [`Image`], with user networking (10.0.2.2 is this
//! machine's loopback), the project folder by 9p, and two serial ports: the kernel's console, kept in the job's folder, and
//! the script's output.

use super::image::Image;
use super::{Job, NO_ANSWER, TIME_LIMIT, Unavailable, wait_or_kill};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";
/// Emulation is this much slower than hardware, about.
const EMULATION_SLOWNESS: u32 = 4;
/// A boot on KVM that has not ended by then is taken for one that hangs.
const KVM_TRIAL: Duration = Duration::from_secs(15);
/// Lines of the kernel's console that are shown if the guest said nothing.
const SHOWN_LINES: usize = 25;

/// An image and what it runs on.
#[derive(Debug)]
pub struct Machine {
    image: Image,
    kvm: bool,
}

impl Machine {
    pub(super) fn find() -> Result<Self, Unavailable> {
        let version = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            return Err(Unavailable(format!("{QEMU} is not installed")));
        }
        let image = Image::cached()?;
        let kvm = image.kvm_verdict(boots_on_kvm);
        Ok(Self { image, kvm })
    }

    pub(super) fn slowness(&self) -> u32 {
        if self.kvm { 1 } else { EMULATION_SLOWNESS }
    }

    pub(super) fn run(&self, job: &Job<'_>, limit: Duration) -> io::Result<i32> {
        let environment: String =
            job.variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
        std::fs::write(job.work.join("environment"), environment)?;
        let console = job.work.join("console.log");
        let words = format!("GUEST_WORK={} GUEST_SCRIPT={}", job.seen(job.work), job.seen(job.script));
        let mut command = boot(&self.image, self.kvm, &words, &console);
        command
            .args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"])
            .arg("-virtfs")
            .arg(format!("local,path={},mount_tag=host,security_model=none,multidevs=remap", job.project.display()));
        let ended = wait_or_kill(&mut command.spawn()?, limit)?;
        let code = match std::fs::read_to_string(job.work.join("exit")) {
            Ok(text) => text.trim().parse().unwrap_or(NO_ANSWER),
            Err(_) if ended.is_none() => TIME_LIMIT,
            Err(_) => NO_ANSWER,
        };
        if matches!(code, TIME_LIMIT | NO_ANSWER) {
            show_end(&console);
        }
        Ok(code)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.kvm { "QEMU on KVM" } else { "QEMU, emulated" })
    }
}

/// Whether the image comes up and goes down again on KVM. A device that is there is not enough: a guest may hang on it.
fn boots_on_kvm(image: &Image) -> bool {
    let Ok(mut child) = boot(image, true, "", Path::new("/dev/null")).spawn() else { return false };
    wait_or_kill(&mut child, KVM_TRIAL).ok().flatten().is_some_and(|status| status.success())
}

/// A machine that ends when the guest restarts or panics. `words` are for the init script, by the kernel's command line.
fn boot(image: &Image, kvm: bool, words: &str, console: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-m", "2048", "-smp", "2"]);
    command.args(if kvm { ["-accel", "kvm", "-cpu", "host"] } else { ["-accel", "tcg", "-cpu", "max"] });
    command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
    command.arg("-append").arg(format!("console=ttyS0 quiet panic=-1 rdinit=/init {words}"));
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.args(["-chardev", "stdio,id=script,signal=off", "-serial", "chardev:script", "-device", "virtio-rng-pci"]);
    command.stdin(Stdio::null());
    command
}

/// As one word of a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[allow(clippy::print_stdout, reason = "beside the output of the script")]
fn show_end(console: &Path) {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    println!("--- end of the kernel's console");
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        println!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_word_of_the_shell_whatever_it_holds() {
        let value = "it's $HOME `x` \"y\" \\ \n z";
        let output = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(value))).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
    }
}
