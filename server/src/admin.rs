//! The admin API: HTTP over a Unix socket that only its owner can reach. It runs beside the shards and asks them by
//! message, so that neither can stall the other.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`] as JSON; a shard that does not answer within a second is named instead of waited for |
//! | `POST /v1/disks/NAME/clear-fault` | 204; 404 if the disk is not known or not poisoned |

use crate::shard::Message;
use crate::status::{ShardStatus, Status};
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

/// How long a shard may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest answer that the command line reads, in bytes.
const MAX_ANSWER: u64 = 64 << 20;

type Shards = Vec<mpsc::Sender<Message>>;

/// Makes the socket. One left behind by a dead process is replaced; one that answers is not.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server answers there"));
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, shards: Shards, started: Instant) {
    let app = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/disks/{disk}/clear-fault", post(clear_fault))
        .with_state((shards, started));
    if let Err(e) = axum::serve(listener, app).await {
        tracing::error!("the admin API ended: {e}");
    }
}

async fn status(State((shards, started)): State<(Shards, Instant)>) -> Json<Status> {
    Json(Status {
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_seconds: started.elapsed().as_secs(),
        shards: ask_shards(&shards).await,
    })
}

/// Every shard's part.
pub(crate) async fn ask_shards(shards: &[mpsc::Sender<Message>]) -> Vec<ShardStatus> {
    let mut parts = Vec::new();
    for (shard, mailbox) in shards.iter().enumerate() {
        let (answer, part) = oneshot::channel();
        let asked = async {
            mailbox.send(Message::Status(answer)).await.ok()?;
            part.await.ok()
        };
        parts.push(match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Some(part)) => part,
            _ => ShardStatus { shard, backend: "DOES NOT ANSWER".into(), ..ShardStatus::default() },
        });
    }
    parts
}

async fn clear_fault(State((shards, _)): State<(Shards, Instant)>, UrlPath(disk): UrlPath<String>) -> StatusCode {
    for shard in &shards {
        let (answer, cleared) = oneshot::channel();
        let asked = shard.send(Message::ClearFault { disk: disk.clone(), answer }).await;
        if asked.is_ok() && cleared.await.unwrap_or(false) {
            return StatusCode::NO_CONTENT;
        }
    }
    StatusCode::NOT_FOUND
}

/// The command line's side: one request, one answer. Returns the HTTP status and the body.
pub(crate) fn request(socket: &Path, method: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(10 * PATIENCE))?;
    write!(stream, "{method} {path} HTTP/1.0\r\nhost: platter\r\ncontent-length: 0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "the server's answer is not HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(unreadable)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(unreadable)?;
    Ok((code, body.to_owned()))
}
