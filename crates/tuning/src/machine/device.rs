//! Which device does the data lie on, and which disks is that made of?

use std::path::PathBuf;

use super::{Machine, Told, Unknown};

/// How deep devices may be stacked.
const DEPTH_MAX: usize = 8;

impl Machine {
    /// Names of the disks below the data, as `/sys/block` has them: those that a volume or an array is made of.
    ///
    /// # Errors
    /// [`Unknown`] when the file system is on no block device that the kernel tells of.
    pub fn data_disks(&self) -> Told<Vec<String>> {
        let name = match &self.device {
            Some(name) => name.trim_start_matches("/dev/").to_owned(),
            None => self.data_device()?,
        };
        let mut disks = Vec::new();
        self.leaves(&name, DEPTH_MAX, &mut disks);
        disks.sort();
        disks.dedup();
        if disks.is_empty() { Err(Unknown::because(format!("there is no /sys/block/{name}"))) } else { Ok(disks) }
    }

    /// Name of the device that the file system of the data says it is on.
    fn data_device(&self) -> Told<String> {
        let (major, minor) = self.disk.device.clone()?;
        let link = format!("/sys/dev/block/{major}:{minor}");
        if let Ok(folder) = self.at(&link).canonicalize() {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            return name.ok_or_else(|| Unknown::because(format!("{link} has no name")));
        }
        // File systems such as btrfs have numbers of their own; the list of mounts names their device.
        let mounts = self.text("/proc/self/mountinfo")?;
        let source = mounts.lines().find_map(|line| {
            let is_this = line.split(' ').nth(2)? == format!("{major}:{minor}");
            let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
            is_this.then(|| source.strip_prefix("/dev/").map(str::to_owned)).flatten()
        });
        source.ok_or_else(|| {
            Unknown::because(format!("the data's file system ({major}:{minor}) names no block device; --device does"))
        })
    }

    fn leaves(&self, name: &str, depth: usize, disks: &mut Vec<String>) {
        let whole = self.whole(name);
        let below = self.names(&format!("/sys/block/{whole}/slaves")).unwrap_or_default();
        if below.is_empty() || depth == 0 {
            if self.has(&format!("/sys/block/{whole}")) {
                disks.push(whole);
            }
            return;
        }
        for name in below {
            self.leaves(&name, depth - 1, disks);
        }
    }

    /// The disk that a part of it belongs to, or the device itself.
    fn whole(&self, name: &str) -> String {
        // A name such as `cciss/c0d0` has a `!` there.
        let name = name.replace('/', "!");
        let folder =
            self.at(&format!("/sys/class/block/{name}")).canonicalize().unwrap_or_else(|_| PathBuf::from(&name));
        if !folder.join("partition").exists() {
            return name;
        }
        let parent = folder.parent().and_then(|parent| parent.file_name());
        parent.map_or(name, |parent| parent.to_string_lossy().into_owned())
    }

    /// Where a disk's memory is nearest; none where it does not matter or the kernel does not tell.
    #[must_use]
    pub fn disk_numa(&self, disk: &str) -> Option<usize> {
        let paths = ["device/numa_node", "device/device/numa_node"];
        let numbers = paths.iter().filter_map(|path| self.number(&format!("/sys/block/{disk}/{path}")).ok());
        numbers.filter_map(|number| usize::try_from(number).ok()).next()
    }

    /// The options that the file system of the data is mounted with.
    ///
    /// # Errors
    /// [`Unknown`] when the list of mounts does not tell.
    pub fn data_mount(&self) -> Told<String> {
        let (major, minor) = self.disk.device.clone()?;
        let mounts = self.text("/proc/self/mountinfo")?;
        let number = format!("{major}:{minor}");
        let options = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let is_this = words.nth(2)? == number;
            let own = words.nth(2)?;
            let of_disk = line.split_once(" - ")?.1.split(' ').nth(2)?;
            is_this.then(|| format!("{own},{of_disk}"))
        });
        options.ok_or_else(|| Unknown::because(format!("/proc/self/mountinfo does not tell of {number}")))
    }
}
