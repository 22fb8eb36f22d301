//! What does someone see who has just started `novad`?

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tuning::settings::Settings;

use crate::surfaces::Served;

/// Says on stdout where the star listens, and where it serves HTTP and S2's clients, each as a line that programs look for, and on stderr
/// what to try.
///
/// It may be that nobody reads either; that stops nothing.
pub(super) fn greet(address: SocketAddr, served: Served, settings: &Settings) {
    let mut out = io::stdout().lock();
    // The wire last: once it is told, whoever waits for it has all.
    let _gone = writeln!(out, "{}listening on {address}", served.lines()).and_then(|()| out.flush());
    drop(out);
    let _gone = io::stderr().write_all(lesson(address, served, settings).as_bytes());
}

fn lesson(address: SocketAddr, served: Served, settings: &Settings) -> String {
    let flag = match reached_at(address) {
        at if at == Settings::default().listen => String::new(),
        at => format!("  export NOVA_ADDR={at}\n"),
    };
    let store = settings.store.directory(&settings.data);
    let store = store.map_or_else(|| settings.store.to_string(), |path| path.display().to_string());
    let http = served.http.map_or_else(String::new, |at| format!("  curl http://{}/v1/buckets\n", reached_at(at)));
    let s2 = served.s2.map_or_else(String::new, |at| {
        let at = reached_at(at);
        format!(
            "S2's clients:\n  export S2_ACCOUNT_ENDPOINT=http://{at} S2_BASIN_ENDPOINT=http://{at} S2_ACCESS_TOKEN=any\n"
        )
    });
    format!(
        "data in {}, store in {store}\n\nTry:\n{flag}  \
         nova bucket create demo --default-class express --create-on-append\n  \
         printf 'hello\\n' | nova append nova://demo/events\n  \
         nova read nova://demo/events\n  \
         nova subscribe nova://demo/events\n{http}{s2}\n",
        settings.data.display()
    )
}

/// Where this machine reaches a star that listens on `address`, which may be every address there is.
pub(super) fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{Served, lesson};
    use tuning::settings::Settings;

    fn served(http: Option<SocketAddr>) -> Served {
        Served { http, s2: None }
    }

    #[test]
    fn the_commands_to_paste_reach_the_star_that_printed_them() {
        let settings = Settings::default();
        let text = lesson(settings.listen, served(settings.http.addr()), &settings);
        assert!(!text.contains("NOVA_ADDR") && text.contains("nova-data/store"), "{text}");
        assert!(text.contains("curl http://127.0.0.1:8080/v1/buckets\n"), "{text}");
        let text = lesson("127.0.0.1:4000".parse().unwrap(), served(None), &settings);
        assert!(text.contains("export NOVA_ADDR=127.0.0.1:4000\n"), "{text}");
        let text = lesson("0.0.0.0:4000".parse().unwrap(), served(None), &settings);
        assert!(text.contains("export NOVA_ADDR=127.0.0.1:4000\n"), "{text}");
        let text = lesson("[::1]:7781".parse().unwrap(), served(None), &settings);
        assert!(text.contains("export NOVA_ADDR=[::1]:7781\n"), "{text}");
    }
}
