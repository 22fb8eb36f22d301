//! Which network devices are there, and which interrupts are theirs?

use super::{CpuList, Machine, Told, Unknown};

impl Machine {
    /// Names of the network devices that a driver serves; not loopback, bridges and the like.
    ///
    /// # Errors
    /// [`Unknown`] when there is none, as in most containers.
    pub fn nics(&self) -> Told<Vec<String>> {
        let mut names = self.names("/sys/class/net")?;
        names.retain(|name| self.has(&format!("/sys/class/net/{name}/device")));
        if names.is_empty() { Err(Unknown::because("no network device is to be seen from here")) } else { Ok(names) }
    }

    /// Where a network device's memory is nearest.
    #[must_use]
    pub fn nic_numa(&self, nic: &str) -> Option<usize> {
        let number = self.number(&format!("/sys/class/net/{nic}/device/numa_node")).ok()?;
        usize::try_from(number).ok()
    }

    /// Numbers of a network device's interrupts, by its device's folder, else by the names of `/proc/interrupts`.
    ///
    /// # Errors
    /// [`Unknown`] when neither tells of any.
    pub fn nic_irqs(&self, nic: &str) -> Told<Vec<u64>> {
        let device = format!("/sys/class/net/{nic}/device");
        let by_folder = [format!("{device}/msi_irqs"), format!("{device}/../msi_irqs")]
            .iter()
            .filter_map(|path| self.names(path).ok())
            .find(|names| !names.is_empty());
        let mut irqs: Vec<u64> = match by_folder {
            Some(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
            None => self.irqs_named(nic, &device)?,
        };
        irqs.retain(|irq| self.has(&format!("/proc/irq/{irq}/smp_affinity_list")));
        if irqs.is_empty() { Err(Unknown::because(format!("no interrupt of {nic} is to be seen"))) } else { Ok(irqs) }
    }

    fn irqs_named(&self, nic: &str, device: &str) -> Told<Vec<u64>> {
        let text = self.text("/proc/interrupts")?;
        // A virtual device's interrupts bear the name of what it hangs on, such as `virtio1-input.0`.
        let bus = self.at(device).canonicalize().ok();
        let bus = bus.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
        let is_its = |word: &str| {
            let names = [Some(nic), bus.as_deref()];
            names.into_iter().flatten().any(|name| {
                let rest = word.strip_prefix(name);
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
            })
        };
        let irq = |line: &str| {
            let (number, rest) = line.split_once(':')?;
            rest.split_whitespace().any(is_its).then(|| number.trim().parse().ok()).flatten()
        };
        Ok(text.lines().filter_map(irq).collect())
    }

    /// The CPUs that an interrupt may come to.
    ///
    /// # Errors
    /// [`Unknown`] when the kernel does not tell.
    pub fn irq_cpus(&self, irq: u64) -> Told<CpuList> {
        self.cpu_list(&format!("/proc/irq/{irq}/smp_affinity_list"))
    }

    /// How many queues of a kind (`rx`, `tx`) a network device has.
    ///
    /// # Errors
    /// [`Unknown`] when the kernel does not tell.
    pub fn nic_queues(&self, nic: &str, kind: &str) -> Told<Vec<String>> {
        let mut names = self.names(&format!("/sys/class/net/{nic}/queues"))?;
        names.retain(|name| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('-')));
        Ok(names)
    }
}
