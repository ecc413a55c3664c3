//! The parts that depend on the processor.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{AUDIT, raw_call, raw_call_range, set_answer, system_call_of};
