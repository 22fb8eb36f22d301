//! Which kind of work may have the shard's time, and which has had its share?
//!
//! No task of a shard is ever preempted: it has the turn until it gives it back. So a share is kept between turns. Each kind of work
//! has an allowance, which its own time uses up, and which the time of others fills: of what those take that have work, it gets its
//! share of theirs. Appends that wait for their commit have
//! work, or a reader would have the shard each time that the disk is busy. A kind without allowance is put off, until it has earned some, or until nobody else has anything to do: time that
//! nobody wants is everybody's, and leaves no debt. Appends are never put off; their share is what others are held against.

use std::time::Duration;

use tuning::settings;

/// What a kind may use at once, in nanoseconds, before it is looked whether others wait.
const ALLOWANCE_NS_MAX: i64 = 500_000;
/// Who has worked within so much of the shard's time has work: between two looks one of several may not have had its turn.
const RECENT_NS: u64 = 5_000_000;
/// What it may owe at most. A turn in which the whole thread stood still must not cost it seconds.
const DEBT_NS_MAX: i64 = 10_000_000;

macro_rules! works {
    ($($(#[$doc:meta])* $name:ident: $used:literal, $share:literal, $put_off:literal;)*) => {
        /// A kind of work.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Work {
            $($(#[$doc])* $name,)*
        }

        impl Work {
            /// All kinds, in their order.
            pub(crate) const ALL: [Self; WORKS] = [$(Self::$name),*];

            /// The names of what is counted of it: time in microseconds, its share, and how often it was put off.
            const fn names(self) -> [&'static str; 3] {
                match self {
                    $(Self::$name => [$used, $share, $put_off],)*
                }
            }
        }
    };
}

/// How many kinds there are.
const WORKS: usize = 5;

works! {
    /// Appends, what else changes a stream, and their answers.
    Append: "work_append_us_total", "share_append", "put_off_append_total";
    /// Records from memory, to readers and subscribers.
    Read: "work_read_us_total", "share_read", "put_off_read_total";
    /// Records that left memory, to readers who are behind.
    CatchUp: "work_catch_up_us_total", "share_catch_up", "put_off_catch_up_total";
    /// What brings records into the standard store, and forgets what is there.
    Settle: "work_settle_us_total", "share_settle", "put_off_settle_total";
    /// Buckets, lists, what the star tells of itself, timers and connections.
    Admin: "work_admin_us_total", "share_admin", "put_off_admin_total";
}

/// The time of a shard, shared out.
#[derive(Debug)]
pub(crate) struct Shares {
    of: [u64; WORKS],
    /// What each kind has used, in nanoseconds.
    used_ns: [u64; WORKS],
    /// What each has had, in nanoseconds: what it used, and while it waited for what it can't go on without.
    had_ns: [u64; WORKS],
    /// What all had had together when each had something last.
    worked_at_ns: [u64; WORKS],
    allowance_ns: [i64; WORKS],
    /// What all had had when each was looked at last.
    seen_ns: [[u64; WORKS]; WORKS],
    /// How often each was put off.
    put_off: [u64; WORKS],
}

impl Shares {
    /// Shared out as the settings say.
    pub(crate) fn new(shares: &settings::Shares) -> Self {
        let of = [shares.append, shares.read, shares.catch_up, shares.settle, shares.admin];
        Self {
            of: of.map(u64::from),
            used_ns: [0; WORKS],
            had_ns: [0; WORKS],
            worked_at_ns: [0; WORKS],
            allowance_ns: [ALLOWANCE_NS_MAX; WORKS],
            seen_ns: [[0; WORKS]; WORKS],
            put_off: [0; WORKS],
        }
    }

    /// A kind has had the shard for so long.
    #[inline]
    pub(crate) fn use_up(&mut self, work: Work, ns: u64) {
        self.used_ns[work as usize] += ns;
        self.claim(work, ns);
    }

    /// A kind waited for so long for what it can't go on without, as appends do for a commit: to others that is time which it had.
    #[inline]
    pub(crate) fn claim(&mut self, work: Work, ns: u64) {
        self.had_ns[work as usize] += ns;
        self.worked_at_ns[work as usize] = self.had_ns.iter().sum();
    }

    /// Whether a kind may go on, or has had its share while others had work.
    pub(crate) fn may_go(&mut self, work: Work) -> bool {
        if work == Work::Append {
            return true;
        }
        let me = work as usize;
        let seen = std::mem::replace(&mut self.seen_ns[me], self.had_ns);
        let since = |at: usize| self.had_ns[at] - seen[at];
        let all_ns: u64 = self.had_ns.iter().sum();
        let has_worked = |at: usize| self.had_ns[at] > 0 && all_ns - self.worked_at_ns[at] < RECENT_NS;
        let is_recent = |at: usize| since(at) > 0 || has_worked(at);
        let others = || (0..WORKS).filter(|at| *at != me);
        let theirs: u64 = others().map(since).sum();
        let their_shares: u64 = others().filter(|at| is_recent(*at)).map(|at| self.of[at]).sum();
        let earned = (theirs * self.of[me]).checked_div(their_shares).unwrap_or(0);
        let of_ns = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let left = self.allowance_ns[me].saturating_sub(of_ns(since(me))).max(-DEBT_NS_MAX);
        self.allowance_ns[me] = left.saturating_add(of_ns(earned)).min(ALLOWANCE_NS_MAX);
        self.allowance_ns[me] > 0
    }

    /// Counts that a kind is put off.
    pub(crate) fn put_off(&mut self, work: Work) {
        self.put_off[work as usize] += 1;
    }

    /// What all other kinds have had; it stays as it is while they have nothing to do.
    pub(crate) fn others_ns(&self, work: Work) -> u64 {
        self.had_ns.iter().sum::<u64>() - self.had_ns[work as usize]
    }

    /// How long others must have the shard until a kind has earned an allowance, if appends alone are there.
    pub(crate) fn owed(&self, work: Work) -> Duration {
        let debt_ns = u64::try_from(-self.allowance_ns[work as usize]).unwrap_or(0);
        Duration::from_nanos(debt_ns * self.of[Work::Append as usize] / self.of[work as usize])
    }

    /// Nobody else has anything to do: a kind goes on as if it had used nothing.
    pub(crate) fn forgive(&mut self, work: Work) {
        self.allowance_ns[work as usize] = ALLOWANCE_NS_MAX;
        self.seen_ns[work as usize] = self.had_ns;
    }

    /// What is counted, by name.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Work::ALL.into_iter().flat_map(|work| {
            let at = work as usize;
            let [used, share, put_off] = work.names();
            let all = [(used, self.used_ns[at] / 1_000), (share, self.of[at]), (put_off, self.put_off[at])];
            all.into_iter().filter(move |(name, _)| work != Work::Append || *name != put_off)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tuning::settings;

    use super::{ALLOWANCE_NS_MAX, Shares, Work};

    const US: u64 = 1_000;

    fn shares(append: u16, catch_up: u16) -> Shares {
        Shares::new(&settings::Shares { append, catch_up, ..settings::Shares::default() })
    }

    /// A shard on which appends always have a turn of so long to take, and readers who catch up too; what each has used after a second.
    fn contended(mut shares: Shares, [append_ns, catch_up_ns]: [u64; 2]) -> [u64; 2] {
        let mut used = [0, 0];
        while used[0] + used[1] < 1_000_000 * US {
            shares.use_up(Work::Append, append_ns);
            used[0] += append_ns;
            if shares.may_go(Work::CatchUp) {
                shares.use_up(Work::CatchUp, catch_up_ns);
                used[1] += catch_up_ns;
            }
        }
        used
    }

    #[test]
    fn who_catches_up_gets_its_share_and_appends_keep_theirs_however_long_the_turns_are() {
        for (append, catch_up) in [(100, 100), (100, 10), (200, 50), (1_000, 1)] {
            for turns in [[20 * US, 20 * US], [5 * US, 300 * US], [300 * US, 5 * US]] {
                let [appends, catching_up] = contended(shares(append, catch_up), turns);
                let wanted = f64::from(catch_up) / f64::from(append + catch_up);
                // Turn by turn, one of each, is all that it could have.
                let wanted = wanted.min(turns[1] as f64 / (turns[0] + turns[1]) as f64);
                let found = catching_up as f64 / (appends + catching_up) as f64;
                assert!((found - wanted).abs() < 0.002, "{append}:{catch_up} {turns:?}: {found} and not {wanted}");
            }
        }
    }

    #[test]
    fn time_that_nobody_wants_leaves_no_debt() {
        let mut shares = shares(100, 1);
        for _ in 0..100 {
            shares.use_up(Work::CatchUp, 1_000 * US);
            assert!(!shares.may_go(Work::CatchUp));
            shares.forgive(Work::CatchUp);
            assert!(shares.may_go(Work::CatchUp));
        }
        // Then others come, and nothing of that time is held against it.
        shares.use_up(Work::CatchUp, u64::try_from(ALLOWANCE_NS_MAX).unwrap());
        assert!(!shares.may_go(Work::CatchUp));
        assert_eq!(shares.others_ns(Work::CatchUp), 0);
        shares.use_up(Work::Append, US);
        assert_eq!(shares.others_ns(Work::CatchUp), US);
        assert!(shares.may_go(Work::CatchUp));
    }

    #[test]
    fn appends_that_wait_for_their_commit_have_time_and_use_none() {
        let mut shares = shares(100, 50);
        shares.use_up(Work::CatchUp, 600 * US);
        assert!(!shares.may_go(Work::CatchUp));
        assert_eq!(shares.owed(Work::CatchUp), Duration::from_micros(200), "a hundred too much, at half their share");
        shares.claim(Work::Append, 199 * US);
        assert!(!shares.may_go(Work::CatchUp));
        shares.claim(Work::Append, 2 * US);
        assert!(shares.may_go(Work::CatchUp));
        assert!(shares.counters().any(|counted| counted == ("work_append_us_total", 0)));
    }

    #[test]
    fn what_others_used_long_ago_is_no_hoard_and_a_long_turn_no_debt_for_ever() {
        let mut shares = shares(100, 100);
        shares.use_up(Work::Append, 3_600_000_000 * US);
        assert!(shares.may_go(Work::CatchUp));
        shares.use_up(Work::CatchUp, 600 * US);
        assert!(!shares.may_go(Work::CatchUp), "an hour of appends earns one allowance");
        shares.use_up(Work::CatchUp, 3_600_000_000 * US);
        assert!(!shares.may_go(Work::CatchUp));
        shares.use_up(Work::Append, 11_000 * US);
        assert!(shares.may_go(Work::CatchUp), "an hour that the thread stood still costs ten milliseconds");
    }

    #[test]
    fn three_kinds_divide_by_their_shares_and_appends_are_never_put_off() {
        let of = settings::Shares { append: 400, read: 300, catch_up: 200, settle: 100, admin: 100 };
        let (mut shares, mut used) = (Shares::new(&of), [0_u64; 3]);
        for _ in 0..200_000 {
            assert!(shares.may_go(Work::Append));
            for (used, work) in used.iter_mut().zip([Work::Append, Work::Read, Work::CatchUp]) {
                let us = 10 * u64::from(shares.may_go(work));
                shares.use_up(work, us * US);
                *used += us;
            }
        }
        let share = |at: usize| used[at] as f64 / used.iter().sum::<u64>() as f64;
        for (at, wanted) in [4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0].into_iter().enumerate() {
            assert!((share(at) - wanted).abs() < 0.01, "{used:?}");
        }
        assert_eq!(shares.owed(Work::Append), Duration::ZERO);
        let counted: Vec<_> = shares.counters().collect();
        assert!(counted.contains(&("work_read_us_total", used[1])) && counted.contains(&("share_catch_up", 200)));
        assert!(counted.iter().all(|(name, _)| *name != "put_off_append_total") && counted.len() == 14);
    }
}
