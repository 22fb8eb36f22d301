//! How does systemd start novad on a host that is made ready first?

use std::path::{Path, PathBuf};

use crate::plan::{Goal, HostPlan};
use crate::settings::{SHARDS_MAX, Settings, StoreAddress};
use crate::start::open_files_needed;

/// Where the data are when the settings name no place of their own.
const DATA: &str = "/var/lib/nova";

/// Files of a gateway: connections of both of its surfaces, of which each takes 16 384, and its own to the star.
const GATEWAY_FILES: u64 = 65_536;

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

/// A unit, as systemd finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The name of its file.
    pub name: &'static str,
    /// What is in the file.
    pub text: String,
}

/// Which hosts the units are for.
#[derive(Debug, Clone, Copy)]
pub enum Fit<'a> {
    /// This one: they name its CPUs and the number of its shards.
    Host(&'a HostPlan),
    /// Any: novad lays its shards out by itself, as it does without flags.
    Any,
}

/// The units: the server's, one that makes the host ready before it, and one for a host with nothing but a gateway.
#[must_use]
pub fn units(service: &Service, fit: Fit<'_>, settings: &Settings) -> Vec<Unit> {
    let flags = flags(service, fit, settings);
    vec![
        Unit { name: "novad.service", text: server(service, fit, settings, &flags) },
        Unit { name: "nova-host.service", text: tuner(service, &flags) },
        Unit { name: "nova-gateway.service", text: gateway(service) },
    ]
}

/// Where the data lie. A relative path would lie wherever the service happens to start.
fn data(settings: &Settings) -> &Path {
    if settings.data.is_absolute() { &settings.data } else { Path::new(DATA) }
}

/// What both programs are told, so that the host is made ready for the novad that starts on it.
fn flags(service: &Service, fit: Fit<'_>, settings: &Settings) -> String {
    let (config, data) = (service.config.display(), data(settings).display());
    let mut flags = format!("--config {config} --data {data}");
    if settings.store != StoreAddress::InData {
        flags += &format!(" --store {}", settings.store);
    }
    if let Fit::Host(plan) = fit {
        flags += &format!(" --shards {}", plan.shards().len());
    }
    flags
}

/// The directories outside of which nothing is written: the data, and the store where it is one of its own.
fn written_to(settings: &Settings) -> String {
    let data = data(settings).display();
    match &settings.store {
        StoreAddress::Directory(store) => format!("{data} {}", store.display()),
        StoreAddress::InData | StoreAddress::S3 { .. } => data.to_string(),
    }
}

fn server(service: &Service, fit: Fit<'_>, settings: &Settings, flags: &str) -> String {
    let shards = match fit {
        Fit::Host(plan) => plan.shards().len(),
        Fit::Any => SHARDS_MAX.into(),
    };
    let files = open_files_needed(shards, settings.connections_max, settings.surface_connections_max());
    let cpus = match fit {
        Fit::Host(plan) => format!("AllowedCPUs={0}\nCPUAffinity={0}\n", plan.cpus()),
        Fit::Any => String::new(),
    };
    let Service { novad, user, .. } = service;
    let (novad, written) = (novad.display(), written_to(settings));
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
{cpus}TimerSlackNSec=50us
OOMScoreAdjust=-500
StateDirectory=nova
ReadWritePaths={written}
{CONFINED}\
SystemCallFilter=@system-service
SystemCallFilter=io_uring_setup io_uring_enter io_uring_register

[Install]
WantedBy=multi-user.target
"
    )
}

/// What neither server needs.
const CONFINED: &str = "\
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
";

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

fn gateway(service: &Service) -> String {
    let (nova, files) = (service.nova.display(), GATEWAY_FILES);
    format!(
        "\
# /etc/systemd/system/nova-gateway.service, where clients speak HTTP and the star is elsewhere: name it in NOVA_ADDR. A novad
# serves HTTP by itself, and needs none.
[Unit]
Description=nova over HTTP, for a star elsewhere
Wants=network-online.target
After=network-online.target

[Service]
Environment=NOVA_ADDR=127.0.0.1:7781
ExecStart={nova} gateway --http 127.0.0.1:8080
DynamicUser=yes
Restart=on-failure
RestartSec=1
LimitNOFILE={files}
LimitCORE=0
{CONFINED}\
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"
    )
}
