//! What does someone see who has just started `novad`?

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tuning::settings::Settings;

/// Says on stdout where the star listens, as a line that programs look for, and on stderr what to try.
///
/// It may be that nobody reads either; that stops nothing.
pub(super) fn greet(address: SocketAddr, settings: &Settings) {
    let mut out = io::stdout().lock();
    let _gone = writeln!(out, "listening on {address}").and_then(|()| out.flush());
    drop(out);
    let _gone = io::stderr().write_all(lesson(address, settings).as_bytes());
}

fn lesson(address: SocketAddr, settings: &Settings) -> String {
    let flag = match reached_at(address) {
        at if at == Settings::default().listen => String::new(),
        at => format!("  export NOVA_ADDR={at}\n"),
    };
    let store = settings.store.directory(&settings.data);
    let store = store.map_or_else(|| settings.store.to_string(), |path| path.display().to_string());
    format!(
        "data in {}, store in {store}\n\nTry:\n{flag}  \
         nova bucket create demo --default-class express --create-on-append\n  \
         printf 'hello\\n' | nova append nova://demo/events\n  \
         nova read nova://demo/events\n  \
         nova subscribe nova://demo/events\n\n",
        settings.data.display()
    )
}

/// Where this machine reaches a star that listens on `address`, which may be every address there is.
fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::lesson;
    use tuning::settings::Settings;

    #[test]
    fn the_commands_to_paste_reach_the_star_that_printed_them() {
        let settings = Settings::default();
        let text = lesson(settings.listen, &settings);
        assert!(!text.contains("NOVA_ADDR") && text.contains("nova-data/store"), "{text}");
        let text = lesson("127.0.0.1:4000".parse().unwrap(), &settings);
        assert!(text.contains("export NOVA_ADDR=127.0.0.1:4000\n"), "{text}");
        let text = lesson("0.0.0.0:4000".parse().unwrap(), &settings);
        assert!(text.contains("export NOVA_ADDR=127.0.0.1:4000\n"), "{text}");
        let text = lesson("[::1]:7781".parse().unwrap(), &settings);
        assert!(text.contains("export NOVA_ADDR=[::1]:7781\n"), "{text}");
    }
}
