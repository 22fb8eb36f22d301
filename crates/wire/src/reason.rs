//! Why something is refused: the one list that answers code, HTTP status, exit code and retry advice.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $word:literal, $http:expr, $exit:literal, $retryable:literal, $no_effect:literal;)*) => {
        /// Why a request was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Reason {
            $($(#[$doc])* $name = $code,)*
        }

        impl Reason {
            /// Every reason, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The reason with this code on the wire; `None` for one of a later version.
            #[must_use]
            pub const fn of_code(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The word that users read and programs match on.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The HTTP status; `None` for what never leaves a client.
            #[must_use]
            pub const fn http_status(self) -> Option<u16> {
                match self { $(Self::$name => $http,)* }
            }

            /// The exit code of the command line.
            #[must_use]
            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$name => $exit,)* }
            }

            /// Whether the same request may succeed later, unchanged.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }

            /// Whether it is certain that nothing was appended or changed by the attempt that got this answer.
            #[must_use]
            pub const fn no_side_effect(self) -> bool {
                match self { $(Self::$name => $no_effect,)* }
            }
        }
    };
}

reasons! {
    // name = code, word, HTTP status, exit code, retryable, no side effect
    /// The request can't be right at any time.
    Invalid = 1, "invalid", Some(400), 2, false, true;
    /// Nobody said who is asking, or the token doesn't verify.
    Unauthenticated = 2, "unauthenticated", Some(401), 8, false, true;
    /// Who is asking may not do this.
    PermissionDenied = 3, "permission_denied", Some(403), 8, false, true;
    /// No such bucket or stream.
    NotFound = 4, "not_found", Some(404), 3, false, true;
    /// There is one of this name already.
    AlreadyExists = 5, "already_exists", Some(409), 4, false, true;
    /// The bucket still holds streams.
    BucketNotEmpty = 6, "bucket_not_empty", Some(409), 4, false, true;
    /// Another writer session holds a fenced stream.
    WriterHeld = 7, "writer_held", Some(409), 4, true, true;
    /// The next sequence number is not the one the batch asked for.
    SequenceMismatch = 8, "sequence_mismatch", Some(412), 5, false, true;
    /// The token that was presented, or its absence, is not what is installed.
    FencedOut = 9, "fenced_out", Some(412), 5, false, true;
    /// A newer session of the same writer took over.
    Superseded = 10, "superseded", Some(409), 4, false, true;
    /// The state of the star or the stream forbids it until someone changes that state.
    FailedPrecondition = 11, "failed_precondition", Some(409), 4, false, true;
    /// Larger than a bound of the protocol.
    TooLarge = 12, "too_large", Some(413), 2, false, true;
    /// The records asked for lie below the trim point.
    Trimmed = 13, "trimmed", Some(416), 6, false, true;
    /// The position asked for lies past the tail.
    OutOfRange = 14, "out_of_range", Some(416), 6, false, true;
    /// A bound of the star or the stream is reached for now.
    ResourceExhausted = 15, "resource_exhausted", Some(429), 7, true, true;
    /// Something is wrong inside nova.
    Internal = 16, "internal", Some(500), 1, false, false;
    /// The call needs the wire, and the client speaks HTTP.
    WireOnly = 17, "wire_only", None, 1, false, true;
    /// Nobody can answer now; what was sent may have taken effect.
    Unavailable = 18, "unavailable", Some(503), 7, true, false;
    /// Another star leads the stream.
    NotOwner = 19, "not_owner", Some(421), 7, true, true;
    /// The time allowed ran out; what was sent may have taken effect.
    DeadlineExceeded = 20, "deadline_exceeded", Some(504), 7, true, false;
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn a_code_names_its_reason_and_no_other_does() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of_code(*reason as u16), Some(*reason));
        }
        assert_eq!(Reason::of_code(0), None);
        assert_eq!(Reason::of_code(21), None);
    }

    #[test]
    fn statuses_and_exit_codes_are_those_of_the_specification() {
        let of = |reason: Reason| (reason.word(), reason.http_status(), reason.exit_code());
        assert_eq!(of(Reason::SequenceMismatch), ("sequence_mismatch", Some(412), 5));
        assert_eq!(of(Reason::Trimmed), ("trimmed", Some(416), 6));
        assert_eq!(of(Reason::NotOwner), ("not_owner", Some(421), 7));
        assert_eq!(of(Reason::WireOnly), ("wire_only", None, 1));
    }
}
