//! The machine and the program of a measurement; without them a figure has no meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine, the program, and how it was called. Facts that the system does not tell are [`throng_machine::UNKNOWN`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Cores that this process may use.
    pub cores: u32,
    /// Whether the processor says that it is a hypervisor's.
    pub virtual_machine: bool,
    /// Memory of the machine; 0 if unknown.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Frequency governor of the first core.
    pub governor: String,
    /// Clock source of the kernel.
    pub clocksource: String,
    /// `release` or `debug`.
    pub profile: String,
    /// Architecture and operating system.
    pub target: String,
    /// Version of the program.
    pub version: String,
    /// The program's arguments, without the program itself.
    pub command_line: Vec<String>,
}

impl Environment {
    /// Asks the system.
    pub fn capture() -> Environment {
        Environment {
            cores: throng_machine::cores(),
            virtual_machine: throng_machine::is_virtual_machine(),
            memory_bytes: throng_machine::memory_bytes(),
            kernel: throng_machine::kernel(),
            governor: throng_machine::governor(),
            clocksource: throng_machine::clocksource(),
            profile: throng_machine::profile(),
            target: throng_machine::target(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: throng_machine::arguments(),
        }
    }
}
