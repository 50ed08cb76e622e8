//! A CUDA graph of launches: a chain of kernel nodes, made once and launched as one.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUstream,
};

use super::attributes::{attributes_of, describe};
use super::context::twice;
use super::driver::Failure;
use crate::device::Launch;

/// An instantiated graph.
pub(super) struct Graph {
    graph: CUgraph,
    exec: CUgraphExec,
    nodes: Vec<CUgraphNode>,
}

/// A launch as a node's parameters, valid while `launch` and `pointers` are.
fn node_params(
    launch: &Launch,
    function: CUfunction,
    pointers: &mut Vec<*mut c_void>,
) -> CUDA_KERNEL_NODE_PARAMS {
    pointers.clear();
    // The driver reads arguments through these pointers and copies them.
    pointers.extend(launch.params.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()));
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (launch.grid, launch.block);
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: launch.attributes.shared_bytes,
        kernelParams: pointers.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

impl Graph {
    /// A graph of launches that run one after another.
    pub(super) fn new(launches: &[Launch], functions: &[CUfunction]) -> Result<Self, Failure> {
        let mut it = Self {
            graph: std::ptr::null_mut(),
            exec: std::ptr::null_mut(),
            nodes: Vec::with_capacity(launches.len()),
        };
        let made = it.build(launches, functions);
        if made.is_err() {
            it.destroy();
        }
        made.map(|()| it)
    }

    fn build(&mut self, launches: &[Launch], functions: &[CUfunction]) -> Result<(), Failure> {
        driver!(cuGraphCreate(&mut self.graph, 0))?;
        let mut pointers = Vec::new();
        for (launch, &function) in launches.iter().zip(functions) {
            let params = node_params(launch, function, &mut pointers);
            let mut node = std::ptr::null_mut();
            let before = self.nodes.last().map_or(&[][..], std::slice::from_ref);
            driver!(
                cuGraphAddKernelNode_v2(
                    &mut node,
                    self.graph,
                    before.as_ptr(),
                    before.len(),
                    &params
                ),
                " of kernel `{}`",
                launch.entry
            )?;
            self.nodes.push(node);
            let (attributes, n_attributes) = attributes_of(&launch.attributes);
            for attribute in &attributes[..n_attributes as usize] {
                driver!(
                    cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value),
                    " of kernel `{}`, grid {:?}, {}",
                    launch.entry,
                    launch.grid,
                    describe(&launch.attributes)
                )?;
            }
        }
        let n = self.nodes.len();
        driver!(cuGraphInstantiateWithFlags(&mut self.exec, self.graph, 0), " of {n} launches")
    }

    /// How many launches it is of.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Changes one launch: its grid or its arguments.
    pub(super) fn rebind(
        &mut self,
        index: usize,
        launch: &Launch,
        function: CUfunction,
    ) -> Result<(), Failure> {
        let mut pointers = Vec::with_capacity(launch.params.len());
        let params = node_params(launch, function, &mut pointers);
        driver!(
            cuGraphExecKernelNodeSetParams_v2(self.exec, self.nodes[index], &params),
            " of kernel `{}`",
            launch.entry
        )
    }

    /// Launches it.
    pub(super) fn launch(&self, stream: CUstream) -> Result<(), Failure> {
        driver!(cuGraphLaunch(self.exec, stream), " of {} launches", self.nodes.len())
    }

    /// Gives it back; whether that worked.
    pub(super) fn destroy(&mut self) -> bool {
        let exec = std::mem::replace(&mut self.exec, std::ptr::null_mut());
        let graph = std::mem::replace(&mut self.graph, std::ptr::null_mut());
        let done = exec.is_null() || twice(|| driver!(cuGraphExecDestroy(exec)));
        (graph.is_null() || twice(|| driver!(cuGraphDestroy(graph)))) && done
    }
}
