//! Running a lowered region on the cpu device.
#![allow(dead_code, reason = "each test binary uses its part")]

use eggine_codegen_ptx::{Lowered, Target, emit};
use eggine_cpu::{LaunchConfig, Memory, Module, Options, Param};
use eggine_ir::{Region, Tensor};

use super::{outputs, parameters};

/// A kernel that is ready to be launched.
pub(crate) struct Ready {
    module: Module,
    memory: Memory,
    params: Vec<Param>,
    tensors: Vec<Tensor>,
    lowered: Lowered,
}

impl Ready {
    /// Prints the kernel as PTX, loads that, and places its parameters.
    pub(crate) fn new(
        lowered: Lowered,
        region: &Region,
        inputs: &[Tensor],
    ) -> Result<Self, String> {
        let ptx = emit(&lowered.kernel, Target::Sm80).map_err(|err| err.to_string())?;
        let module = Module::load(&ptx).map_err(|err| format!("{err}\n{ptx}"))?;
        let tensors = parameters(&lowered, region, inputs);
        let mut memory = Memory::new();
        let mut params = Vec::new();
        for tensor in &tensors {
            let address = memory.alloc(tensor.bytes.len()).map_err(|err| err.to_string())?;
            memory.write(address, &tensor.bytes).map_err(|err| err.to_string())?;
            params.push(Param::U64(address));
        }
        Ok(Self { module, memory, params, tensors, lowered })
    }

    /// Runs it once.
    pub(crate) fn launch(&self, options: &Options) -> Result<(), String> {
        let kernel = &self.lowered.kernel;
        let config = LaunchConfig {
            grid: kernel.grid,
            block: [kernel.n_threads, 1, 1],
            params: &self.params,
        };
        eggine_cpu::launch(&self.module, &kernel.name, &self.memory, &config, options)
            .map_err(|err| err.to_string())?;
        Ok(())
    }

    /// The outputs, as they are in memory now.
    pub(crate) fn outputs(&self, region: &Region) -> Vec<Tensor> {
        let mut tensors = self.tensors.clone();
        for (tensor, param) in tensors.iter_mut().zip(&self.params) {
            let Param::U64(address) = *param else { unreachable!("all parameters are pointers") };
            let mut bytes = vec![0u8; tensor.bytes.len()];
            self.memory.read(address, &mut bytes).expect("memory of this launch");
            *tensor = Tensor::new(tensor.dtype, &tensor.extents.clone(), bytes);
        }
        outputs(&self.lowered, region, &tensors)
    }
}
