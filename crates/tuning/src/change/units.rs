//! How does systemd start novad on a host that is made ready first?

use std::path::{Path, PathBuf};

use crate::plan::{Goal, HostPlan};
use crate::settings::Settings;
use crate::start::open_files_needed;

/// Where the data are when the settings name no place of their own.
const DATA: &str = "/var/lib/nova";

/// Where the programs and their files are.
#[derive(Debug, Clone)]
pub struct Service {
    /// The server.
    pub novad: PathBuf,
    /// The command line.
    pub nova: PathBuf,
    /// The settings file.
    pub config: PathBuf,
    /// Who it runs as.
    pub user: String,
    /// What the plan is laid out for.
    pub goal: Goal,
    /// Device of the data, where it had to be named.
    pub device: Option<String>,
}

/// The units: the server's, and one that makes the host ready before it.
#[must_use]
pub fn units(service: &Service, plan: &HostPlan, settings: &Settings) -> String {
    let flags = flags(service, plan, settings);
    format!("{}\n{}", server(service, plan, settings, &flags), tuner(service, &flags))
}

/// Where the data lie. A relative path would lie wherever the service happens to start.
fn data(settings: &Settings) -> &Path {
    if settings.data.is_absolute() { &settings.data } else { Path::new(DATA) }
}

/// What both programs are told, so that the host is made ready for the novad that starts on it.
fn flags(service: &Service, plan: &HostPlan, settings: &Settings) -> String {
    let (config, data) = (service.config.display(), data(settings).display());
    format!("--config {config} --data {data} --shards {}", plan.shards().len())
}

fn server(service: &Service, plan: &HostPlan, settings: &Settings, flags: &str) -> String {
    let files = open_files_needed(plan.shards().len(), settings.connections_max, settings.surface_connections_max());
    let Service { novad, user, .. } = service;
    let (novad, data, cpus) = (novad.display(), data(settings).display(), plan.cpus());
    // SIGTERM finishes what clients have in flight, and ends at most 2 s after that.
    let stop_seconds = settings.drain_timeout_ms.duration().as_secs() + 10;
    format!(
        "\
# /etc/systemd/system/novad.service, for a user that `useradd --system {user}` makes
[Unit]
Description=nova, durable streams
Wants=network-online.target
After=network-online.target nova-host.service

[Service]
ExecStart={novad} {flags}
User={user}
Restart=on-failure
RestartSec=1
TimeoutStopSec={stop_seconds}
LimitMEMLOCK=infinity
LimitNOFILE={files}
LimitCORE=0
AllowedCPUs={cpus}
CPUAffinity={cpus}
TimerSlackNSec=50us
OOMScoreAdjust=-500
StateDirectory=nova
ReadWritePaths={data}
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
CapabilityBoundingSet=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=io_uring_setup io_uring_enter io_uring_register

[Install]
WantedBy=multi-user.target
"
    )
}

fn tuner(service: &Service, flags: &str) -> String {
    let Service { nova, goal, device, .. } = service;
    let (nova, goal) = (nova.display(), goal.word());
    let device = device.as_ref().map_or_else(String::new, |device| format!(" --device {device}"));
    format!(
        "\
# /etc/systemd/system/nova-host.service
[Unit]
Description=The host as nova wants it
Before=novad.service

[Service]
Type=oneshot
RemainAfterExit=yes
# 1 says that the host refused some of it, which stops nobody.
SuccessExitStatus=1
ExecStart={nova} host apply {flags} --goal {goal}{device}
ExecStop={nova} host restore
StateDirectory=nova-host

[Install]
WantedBy=multi-user.target
"
    )
}
