//! Cuts the power of a file system: it forgets everything that is not on its disk. The call that
//! does this is an ioctl, which takes `unsafe`; a helper in Python makes it, kept ready so that the
//! cut is quick.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::report::NotRun;
use crate::worker::PATIENCE;

/// FS_IOC_SHUTDOWN, without flushing the file system's log first.
const SCRIPT: &str = r#"
import fcntl, os, struct, sys
print("ready", flush=True)
for path in sys.stdin:
    try:
        fd = os.open(path.rstrip("\n"), os.O_RDONLY)
        fcntl.ioctl(fd, 0x8004587D, struct.pack("I", 2))
        os.close(fd)
        print("cut", flush=True)
    except OSError as error:
        print(error, flush=True)
"#;

/// The helper.
#[derive(Debug)]
pub(crate) struct Cutter {
    // Held so that it ends with this value.
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Cutter {
    /// Starts it, and waits until it is ready.
    pub(crate) async fn start() -> Result<Self, NotRun> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| NotRun(format!("python3: {error}")))?;
        let input = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        let output = BufReader::new(output).lines();
        let mut cutter = Self { _child: child, input, output };
        cutter.expect("ready").await?;
        Ok(cutter)
    }

    /// Cuts the power of the file system mounted at `point`.
    pub(crate) async fn cut(&mut self, point: &Path) -> Result<(), NotRun> {
        let line = format!("{}\n", point.display());
        let asking = async {
            self.input.write_all(line.as_bytes()).await?;
            self.input.flush().await
        };
        asking.await.map_err(|error| NotRun(format!("power cut: {error}")))?;
        self.expect("cut").await
    }

    async fn expect(&mut self, expected: &str) -> Result<(), NotRun> {
        match tokio::time::timeout(PATIENCE, self.output.next_line()).await {
            Ok(Ok(Some(answer))) if answer == expected => Ok(()),
            Ok(Ok(Some(answer))) => Err(NotRun(format!("power cut: {answer}"))),
            Ok(Ok(None)) => Err(NotRun("power cut: python3 ended".to_owned())),
            Ok(Err(error)) => Err(NotRun(format!("power cut: {error}"))),
            Err(_) => Err(NotRun("power cut: python3 does not answer".to_owned())),
        }
    }
}
