//! A server inside the test's process, with a gate and a fault injector between its engine and its disks.

use platter::BackendHook;
use platter_backends::{Backend, Faults, Faulty, FileBackend};
use platter_tests::server_process::Setup;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The server. Stopped when dropped.
pub(crate) struct InProcess {
    address: SocketAddr,
    /// Holds ops on their way to the disk.
    pub(crate) gate: Faults,
    /// Below the gate: fails ops that have come through it.
    pub(crate) disk: Faults,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<bool>>,
}

impl InProcess {
    /// Starts a server of one shard in a thread of its own and waits until it listens.
    pub(crate) fn start(setup: &Setup) -> Self {
        let text = std::fs::read_to_string(setup.config()).expect("the setup wrote its configuration");
        let (faults, made) = mpsc::channel();
        let (started, has_started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(async move {
                let server = platter::start_for_tests(&text, Some(hook(faults))).await.expect("the server starts");
                started.send(server.addresses()[0]).expect("the test waits");
                // An error means that the test is gone: stop as well.
                let _ = stopped.await;
                server.stop().await
            })
        });
        let address = has_started.recv().expect("the server starts");
        let (gate, disk) = made.recv().expect("the hook has run");
        Self { address, gate, disk, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it in the orderly way. Whether everything acknowledged is durable.
    pub(crate) fn stop(mut self) -> bool {
        self.end().expect("the server's thread does not panic")
    }

    fn end(&mut self) -> std::thread::Result<bool> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(true), JoinHandle::join)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // A panic of the server's thread has been printed; a second one while unwinding would hide the test's own.
        let _ = self.end();
    }
}

fn hook(handles: mpsc::Sender<(Faults, Faults)>) -> BackendHook {
    let handles = Mutex::new(handles);
    Arc::new(move |backend: Box<dyn FileBackend>| {
        let failing = Faulty::new(backend).expect("descriptors are left");
        let disk = failing.faults();
        let gated = Faulty::new(failing).expect("descriptors are left");
        handles.lock().expect("nobody panics with it").send((gated.faults(), disk)).expect("the test waits");
        debug_assert_eq!(gated.in_flight(), 0);
        Box::new(gated)
    })
}

/// Waits until nobody holds the state folder's database: the threads of a server whose stop was not clean end on their own.
pub(crate) fn wait_until_released(setup: &Setup) {
    let database = std::fs::File::open(setup.folder().join("state/state.redb")).expect("the server made its database");
    // Blocks until the server's lock is gone; ours goes with the file.
    database.lock().expect("the file can be locked");
}
