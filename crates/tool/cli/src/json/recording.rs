//! Facts about a recording and its processes, for JSON: exit statuses, pauses, damage.

use heapledger_recording::{Damage, ExitStatus, Pause};
use serde::Serialize;

use crate::format::seconds;

/// The exit status of a program: `{"code": 0}` or `{"signal": 9}`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExitJson {
    Code(i32),
    Signal(i32),
}

impl From<ExitStatus> for ExitJson {
    fn from(exit: ExitStatus) -> ExitJson {
        match exit {
            ExitStatus::Code(code) => ExitJson::Code(code),
            ExitStatus::Signal(signal) => ExitJson::Signal(signal),
        }
    }
}

/// A time in which nothing was recorded.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PauseJson {
    from_seconds: f64,
    /// `null` if the pause lasted to the end.
    until_seconds: Option<f64>,
    /// True if the recorder stood still; false if recording was paused.
    stalled: bool,
}

impl From<&Pause> for PauseJson {
    fn from(pause: &Pause) -> PauseJson {
        PauseJson {
            from_seconds: seconds(pause.from),
            until_seconds: pause.until.map(seconds),
            stalled: pause.is_stall,
        }
    }
}

/// A part of the file that cannot be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DamageJson {
    offset: u64,
    reason: String,
}

impl From<&Damage> for DamageJson {
    fn from(damage: &Damage) -> DamageJson {
        DamageJson { offset: damage.offset, reason: damage.reason.to_string() }
    }
}
