//! How is a client found out that takes no byte of its answer, or next to none?

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A client that is waited for must take so many bytes in each span of waiting.
const TAKEN_BYTES_MIN: u64 = 16 << 10;

/// A socket whose writes fail once the other side has not taken enough of them for a while.
///
/// The first write that has to wait begins a span; at its end the other side must have taken [`TAKEN_BYTES_MIN`], or
/// everything.
#[derive(Debug)]
pub(super) struct Timed<S> {
    socket: S,
    wait_max: Duration,
    span: Pin<Box<Sleep>>,
    is_in_span: bool,
    taken_bytes: u64,
}

impl<S> Timed<S> {
    pub(super) fn new(socket: S, wait_max: Duration) -> Self {
        Self { socket, wait_max, span: Box::pin(sleep(wait_max)), is_in_span: false, taken_bytes: 0 }
    }

    fn on_written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.taken_bytes += bytes as u64;
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if !self.is_in_span {
                    self.begin();
                }
                ready!(self.span.as_mut().poll(context));
                if self.taken_bytes < TAKEN_BYTES_MIN {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                self.begin();
                // The span that begins now has to wake this task too.
                let _begun = self.span.as_mut().poll(context);
                Poll::Pending
            }
        }
    }

    fn begin(&mut self) {
        self.is_in_span = true;
        self.taken_bytes = 0;
        self.span.as_mut().reset(Instant::now() + self.wait_max);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.on_written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.on_written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.socket).poll_flush(context));
        // Everything is taken: a later wait begins a span of its own.
        self.is_in_span = false;
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::Timed;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Takes a little every twenty seconds; answers how much there was.
    async fn drink(mut theirs: DuplexStream) -> usize {
        let (mut piece, mut bytes) = (vec![0; 20 << 10], 0);
        loop {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let more = theirs.read(&mut piece).await.unwrap();
            if more == 0 {
                return bytes;
            }
            bytes += more;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_nothing_is_cut_off_and_whoever_takes_enough_is_not() {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut socket = Timed::new(ours, Duration::from_secs(30));
        let error = socket.write_all(&[0; 64 << 10]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        drop(socket);
        let mut out = Vec::new();
        theirs.read_to_end(&mut out).await.unwrap();
        assert_eq!(out.len(), 1 << 10);

        let (ours, theirs) = duplex(20 << 10);
        let mut socket = Timed::new(ours, Duration::from_secs(30));
        let slow = tokio::spawn(drink(theirs));
        socket.write_all(&vec![0; 1 << 20]).await.unwrap();
        socket.flush().await.unwrap();
        drop(socket);
        assert_eq!(slow.await.unwrap(), 1 << 20);
    }
}
