//! From a plan to a running server: state, shards, listeners, signals, and the way down.

use crate::admin;
use crate::config::{Access, BackendChoice, Plan, Portal, Volume};
use crate::groups::Groups;
use crate::shard::{self, BackendMaker, Clock, Message, ShardConfig, VolumeConfig};
use crate::state::{State, StateError};
use platter_backends::{FileBackend, Preference};
use platter_block::{DiskId, Rotation, VolumeId, VolumeInfo};
use platter_proto::iscsi::{DirectoryEntry, Initiators, PortalInfo, TargetConfig};
use platter_proto::scsi::{DeviceConfig, Identity, UnitConfig};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// Entries of each shard's ring.
const RING_ENTRIES: u32 = 256;
/// Threads per disk of the `threads` backend.
const THREADS_PER_DISK: usize = 16;
/// All portals of a target are one portal group (RFC 7143 4.4.1). A session has one connection, so nothing more is promised.
const PORTAL_GROUP: u16 = 1;
/// How long the acceptor rests when the process is out of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Changes the backend of a shard before it is used: how tests put a fault injector between engine and disks.
pub type BackendHook = Arc<dyn Fn(Box<dyn FileBackend>) -> Box<dyn FileBackend> + Send + Sync>;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder cannot be used.
    #[error(transparent)]
    State(#[from] StateFailure),
    /// A portal cannot be listened on.
    #[error("cannot listen on {address} (portal `{portal}`): {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Its name in the configuration.
        portal: String,
        /// Why.
        source: io::Error,
    },
    /// The admin socket cannot be made.
    #[error("cannot make the admin socket {path}: {source}")]
    Admin {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Threads, rings or descriptors are missing.
    #[error("cannot start an I/O thread: {0}")]
    Thread(#[from] io::Error),
}

/// The state folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StateFailure(StateError);

impl From<StateError> for StartError {
    fn from(e: StateError) -> Self {
        Self::State(StateFailure(e))
    }
}

/// A server that accepts connections.
pub struct Server {
    shards: Vec<mpsc::Sender<Message>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    acceptors: Vec<tokio::task::JoinHandle<()>>,
    admin: tokio::task::JoinHandle<()>,
    admin_path: std::path::PathBuf,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Starts everything. Listens only when every disk was looked for; on an error nothing is left behind.
    pub(crate) async fn start(plan: Plan, hook: Option<BackendHook>) -> Result<Self, StartError> {
        let state = Arc::new(State::open(&plan.state)?);
        let mut listeners = Vec::new();
        for portal in &plan.portals {
            let listener = TcpListener::bind(portal.listen).await.map_err(|source| StartError::Listen {
                address: portal.listen,
                portal: portal.name.clone(),
                source,
            })?;
            listeners.push(listener);
        }
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let admin_failed = |source| StartError::Admin { path: plan.admin.display().to_string(), source };
        let admin_listener = admin::bind(&plan.admin).map_err(admin_failed)?;

        let (shards, threads) = start_shards(&plan, &state, hook, &addresses).await?;
        let clock = std::time::Instant::now();
        let admin = tokio::spawn(admin::serve(admin_listener, shards.clone(), clock));
        let mut acceptors = Vec::new();
        for (index, listener) in listeners.into_iter().enumerate() {
            let portal = plan.portals[index].clone();
            tracing::info!(portal = portal.name, "listening on {}", addresses[index]);
            acceptors.push(tokio::spawn(accept(listener, portal, portal_number(index), shards[0].clone())));
        }
        Ok(Self { shards, threads, acceptors, admin, admin_path: plan.admin, addresses })
    }

    /// Where each portal listens, in the order of their names.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What `platter status` shows.
    pub async fn status(&self) -> Vec<crate::status::ShardStatus> {
        admin::ask_shards(&self.shards).await
    }

    /// Stops accepting, finishes what is in flight, flushes. Whether everything acknowledged is durable.
    pub async fn stop(self) -> bool {
        for acceptor in &self.acceptors {
            acceptor.abort();
        }
        let mut answers = Vec::new();
        for shard in &self.shards {
            let (answer, ended) = oneshot::channel();
            if shard.send(Message::Stop(answer)).await.is_ok() {
                answers.push(ended);
            }
        }
        let mut clean = true;
        for answer in answers {
            clean &= answer.await.unwrap_or(false);
        }
        self.admin.abort();
        let _ = std::fs::remove_file(&self.admin_path);
        if clean {
            for thread in self.threads {
                clean &= thread.join().is_ok();
            }
        }
        clean
    }
}

async fn start_shards(
    plan: &Plan,
    state: &Arc<State>,
    hook: Option<BackendHook>,
    addresses: &[SocketAddr],
) -> Result<(Vec<mpsc::Sender<Message>>, Vec<std::thread::JoinHandle<()>>), StartError> {
    let groups = Groups::deal(plan);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..plan.shards).map(|_| mpsc::channel::<Message>(shard::MAILBOX)).unzip();
    let directory = directory(plan, addresses);
    let shard_of_target: BTreeMap<String, usize> =
        plan.volumes.iter().filter_map(|v| Some((v.iscsi.as_ref()?.target.clone(), groups.of_volume(v)))).collect();
    let shard_of_target = Arc::new(shard_of_target);
    let poisoned: BTreeMap<String, String> = state.poisoned()?.into_iter().collect();
    let clock = Clock::new();
    let mut threads = Vec::new();
    let mut waiting = Vec::new();
    for (index, mailbox) in receivers.into_iter().enumerate() {
        let here = |disk: &usize| groups.of_disk(*disk) == index;
        let disks: Vec<_> = (0..plan.disks.len()).filter(here).map(|d| (disk_id(d), plan.disks[d].clone())).collect();
        let config = ShardConfig {
            index,
            clock,
            memory: (plan.memory / u64::from(plan.shards)) as usize,
            backend: backend(plan.backend, hook.clone()),
            poisoned: disks.iter().filter_map(|(id, disk)| Some((*id, poisoned.get(&disk.name)?.clone()))).collect(),
            disks,
            volumes: volumes(plan, |v| groups.of_volume(v) == index),
            targets: targets(plan, state, |v| groups.of_volume(v) == index)?,
            directory: directory.clone(),
            tsih_seed: std::process::id() as u16,
            shard_of_target: shard_of_target.clone(),
            peers: senders.clone(),
            state: state.clone(),
        };
        let (ready, is_ready) = oneshot::channel();
        waiting.push(is_ready);
        threads.push(std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
            if let Err(e) = shard::run(config, mailbox, ready) {
                tracing::error!("shard {index} ended: {e}");
            }
        })?);
    }
    for (index, ready) in waiting.into_iter().enumerate() {
        if ready.await.is_err() {
            return Err(io::Error::other(format!("shard {index} did not start; its error is in the log")).into());
        }
    }
    Ok((senders, threads))
}

fn backend(choice: BackendChoice, hook: Option<BackendHook>) -> BackendMaker {
    let preference = match choice {
        BackendChoice::Auto => Preference::Auto,
        BackendChoice::Uring => Preference::Uring,
        BackendChoice::Threads => Preference::Threads,
    };
    Box::new(move || {
        let started = platter_backends::start(preference, RING_ENTRIES, THREADS_PER_DISK)?;
        let name = match &started.why_not_uring {
            Some(why) => format!("{} ({why})", started.backend.name()),
            None => started.backend.name().to_owned(),
        };
        let backend: Box<dyn FileBackend> = started.backend;
        Ok((if let Some(hook) = hook { hook(backend) } else { backend }, name))
    })
}

fn disk_id(index: usize) -> DiskId {
    DiskId(u32::try_from(index).expect("a configuration file of 4 MiB names fewer than 2^32 disks"))
}

fn portal_number(index: usize) -> u16 {
    u16::try_from(index).expect("an address has fewer than 2^16 ports, and a host few addresses")
}

fn volume_id(plan: &Plan, volume: &Volume) -> VolumeId {
    let index = plan.volumes.iter().position(|v| v.name == volume.name).expect("the volume is one of the plan");
    VolumeId(u32::try_from(index).expect("a configuration file of 4 MiB names fewer than 2^32 volumes"))
}

fn volumes(plan: &Plan, here: impl Fn(&Volume) -> bool) -> Vec<VolumeConfig> {
    plan.volumes
        .iter()
        .filter(|v| here(v))
        .map(|v| VolumeConfig {
            id: volume_id(plan, v),
            name: v.name.clone(),
            segments: v.segments.clone(),
            export: v.iscsi.as_ref().map_or_else(|| "-".into(), |e| format!("{} LUN {}", e.target, e.lun)),
        })
        .collect()
}

fn targets(plan: &Plan, state: &State, here: impl Fn(&Volume) -> bool) -> Result<Vec<TargetConfig>, StateError> {
    let mut targets: BTreeMap<&str, TargetConfig> = BTreeMap::new();
    for volume in plan.volumes.iter().filter(|v| here(v)) {
        let Some(export) = &volume.iscsi else { continue };
        let target = targets.entry(&export.target).or_insert_with(|| TargetConfig {
            name: export.target.clone(),
            alias: None,
            initiators: initiators(&volume.access),
            device: DeviceConfig { name: export.target.clone(), portal_group: PORTAL_GROUP, units: Vec::new() },
        });
        let mut unit = UnitConfig::new(export.lun, volume_id(plan, volume), unknown_volume(), identity(volume, state)?);
        unit.read_only = volume.read_only;
        unit.removable = export.removable;
        target.device.units.push(unit);
    }
    Ok(targets.into_values().collect())
}

/// What is told of a volume before its disks have been seen.
fn unknown_volume() -> VolumeInfo {
    VolumeInfo {
        block_size: 512,
        physical_block: 4096,
        blocks: 0,
        write_cache: true,
        write_cache_changeable: true,
        rotation: Rotation::Unknown,
        discard: None,
        max_transfer: 2048,
        read_only: false,
        ready: false,
    }
}

fn identity(volume: &Volume, state: &State) -> Result<Identity, StateError> {
    let random = state.identity(&volume.name)?;
    let hex: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let mut naa = [0; 8];
    naa.copy_from_slice(&random[..8]);
    naa[0] = 0x30 | naa[0] & 0x0f;
    Ok(Identity {
        vendor: *b"PLATTER ",
        product: *b"VOLUME          ",
        revision: revision(),
        serial: volume.serial.clone().unwrap_or_else(|| hex[..20].to_owned()),
        naa,
    })
}

/// Four characters of the version, as INQUIRY has room for.
fn revision() -> [u8; 4] {
    let mut revision = *b"    ";
    let digits = env!("CARGO_PKG_VERSION").bytes().filter(|b| *b != b'.');
    for (place, digit) in revision.iter_mut().zip(digits) {
        *place = digit;
    }
    revision
}

fn initiators(access: &Access) -> Initiators {
    match access {
        Access::Any => Initiators::Any,
        Access::Hosts(names) => Initiators::Listed(names.clone()),
    }
}

/// What SendTargets tells. A wildcard portal without a configured address is told as the address that was reached.
fn directory(plan: &Plan, addresses: &[SocketAddr]) -> Vec<DirectoryEntry> {
    let mut entries: BTreeMap<&str, DirectoryEntry> = BTreeMap::new();
    for volume in &plan.volumes {
        let Some(export) = &volume.iscsi else { continue };
        entries.entry(&export.target).or_insert_with(|| {
            let fixed = export.portals.iter().filter_map(|&index| {
                let portal = &plan.portals[index];
                let address = match &portal.advertise {
                    Some(address) => address.clone(),
                    None if addresses[index].ip().is_unspecified() => return None,
                    None => addresses[index].to_string(),
                };
                Some(PortalInfo { address, tag: PORTAL_GROUP, number: portal_number(index) })
            });
            DirectoryEntry {
                name: export.target.clone(),
                initiators: initiators(&volume.access),
                portals: fixed.collect(),
                through: export.portals.iter().map(|&index| portal_number(index)).collect(),
            }
        });
    }
    entries.into_values().collect()
}

async fn accept(listener: TcpListener, portal: Portal, number: u16, shard: mpsc::Sender<Message>) {
    let mut complained = None::<std::time::Instant>;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(message) = accepted(stream, peer, &portal, number) else { continue };
                if shard.send(message).await.is_err() {
                    return;
                }
            }
            Err(e) => {
                if complained.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                    tracing::error!(portal = portal.name, "cannot accept connections: {e}");
                    complained = Some(std::time::Instant::now());
                }
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

fn accepted(stream: TcpStream, peer: SocketAddr, portal: &Portal, number: u16) -> io::Result<Message> {
    let address = match &portal.advertise {
        Some(address) => address.clone(),
        None => stream.local_addr()?.to_string(),
    };
    let portal = PortalInfo { address, tag: PORTAL_GROUP, number };
    Ok(Message::Accepted { stream: stream.into_std()?, peer: peer.to_string(), portal })
}
