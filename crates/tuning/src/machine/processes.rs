//! Which of the host's own services run?

use super::{Machine, Told};

impl Machine {
    /// The first process of one of these names, with its command line; the kernel cuts names at 15 characters.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) when processes can't be listed.
    pub fn process_named(&self, names: &[&str]) -> Told<Option<String>> {
        let pids = self.names("/proc")?;
        let is_pid = |name: &&String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        for pid in pids.iter().filter(is_pid) {
            // A process that ended meanwhile is none.
            let Ok(name) = self.words(&format!("/proc/{pid}/comm")) else { continue };
            if names.contains(&name.as_str()) {
                return Ok(Some(self.command_line(pid).unwrap_or(name)));
            }
        }
        Ok(None)
    }

    /// The words that a process was started with; none of one that has ended, or of the kernel's own.
    fn command_line(&self, pid: &str) -> Option<String> {
        let line = self.text(&format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        Some(line.trim().to_owned()).filter(|line| !line.is_empty())
    }
}
