//! `platter serve --demo`: something to try in one line, without a configuration.

use crate::config::{ConfigError, Plan, parse};
use std::path::Path;

/// Where the demo keeps its file and state, below the working folder.
const FOLDER: &str = "platter-demo";
/// What it exports.
const TARGET: &str = "iqn.2026-11.org.platter:demo";
const PORT: u16 = 3260;

/// The configuration that the demo stands for.
pub(crate) fn plan() -> Result<Plan, ConfigError> {
    let text = format!(
        "state: {FOLDER}/state
admin: {FOLDER}/admin.sock
portals:
  demo: {{ listen: '127.0.0.1:{PORT}' }}
disks:
  demo: {{ path: {FOLDER}/disk.img, size: 2GiB }}
volumes:
  demo:
    disk: demo
    hosts: {{ allow_any: true }}
    iscsi: {{ target: '{TARGET}', lun: 0 }}
"
    );
    parse(Path::new("(demo)"), &text)
}

/// The folder must be there before the plan is served.
pub(crate) fn make_folder() -> std::io::Result<()> {
    std::fs::create_dir_all(FOLDER)
}

/// What to try, ready to paste.
pub(crate) fn lines() -> String {
    let url = format!("iscsi://127.0.0.1:{PORT}/{TARGET}/0");
    format!(
        "Platter exports {FOLDER}/disk.img (2 GiB, sparse). Try, in another terminal:

  iscsi-ls -s iscsi://127.0.0.1:{PORT}
  iscsi-inq {url}
  qemu-img create -f raw image.raw 1G
  qemu-img convert -n -f raw -O raw image.raw {url}
  iscsiadm -m discovery -t st -p 127.0.0.1:{PORT}
  iscsiadm -m node -T {TARGET} -p 127.0.0.1:{PORT} --login
  platter status --admin {FOLDER}/admin.sock

Ctrl-C stops it; everything acknowledged is then durable in the file.
"
    )
}
