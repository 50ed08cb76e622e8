//! Graphs: what a captured stream was asked, in order. Every graph is a chain, so that executing it is
//! executing its operations.

use std::ffi::{c_uint, c_void};

use eggine_cpu::Param;

use crate::attributes::Attributes;
use crate::call::{get, put};
use crate::result::{Code, Done};
use crate::state::{Function, Graph, GraphExec, Handle, Owned, State, to_handle, to_id};

/// A kernel with everything that its launch needs.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub(crate) function: Function,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) params: Vec<Param>,
    pub(crate) attributes: Attributes,
}

/// Something that a stream is asked to do.
#[derive(Clone)]
#[allow(missing_docs, reason = "addresses and sizes in bytes")]
pub(crate) enum Op {
    Kernel(Kernel),
    ToDevice { to: u64, from: *const u8, n_bytes: usize },
    ToHost { to: *mut u8, from: u64, n_bytes: usize },
    OnDevice { to: u64, from: u64, n_bytes: usize },
    Fill { at: u64, value: u32, width: usize, count: usize },
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NodeParams {
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    params: *const *const c_void,
    extra: *const *const c_void,
    kernel: Handle,
    ctx: Handle,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct UpdateResult {
    result: c_uint,
    node: Handle,
    from: Handle,
}

impl State {
    fn insert_graph(&mut self, ops: Vec<Op>) -> Done<u64> {
        let (ctx, id) = (self.current()?, self.new_id());
        let nodes: Vec<u64> = ops.iter().map(|_| self.new_id()).collect();
        for (index, &node) in nodes.iter().enumerate() {
            self.nodes.insert(node, (id, index));
        }
        self.graphs.insert(id, Owned { ctx, it: Graph { ops, nodes } });
        Ok(id)
    }

    fn instantiate(&mut self, exec: *mut Handle, graph: Handle) -> Done {
        let graph = self.graphs.get(&to_id(graph)).ok_or(Code::INVALID_VALUE)?;
        for op in &graph.it.ops {
            if let Op::Kernel(kernel) = op {
                self.check_attributes(kernel)?;
            }
        }
        let it = GraphExec { ops: graph.it.ops.clone(), nodes: graph.it.nodes.clone() };
        let (ctx, id) = (self.current()?, self.new_id());
        put(exec, to_handle(id))?;
        self.execs.insert(id, Owned { ctx, it });
        Ok(())
    }

    fn node(&self, node: Handle) -> Done<&Op> {
        let &(graph, index) = self.nodes.get(&to_id(node)).ok_or(Code::INVALID_VALUE)?;
        self.graphs.get(&graph).map(|graph| &graph.it.ops[index]).ok_or(Code::INVALID_VALUE)
    }
}

/// Whether two operations may take each other's place in an instantiated graph.
fn same_kind(a: &Op, b: &Op) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

export! { TABLE;
    Context "cuStreamBeginCapture" 10010 cuStreamBeginCapture_v2(s, stream: Handle, mode: c_uint) {
        let id = s.stream(stream)?;
        let stream = s.streams.get_mut(&id).ok_or(Code::CAPTURE_UNSUPPORTED)?;
        if stream.it.capture.is_some() || mode > 2 {
            return Err(Code::ILLEGAL_STATE);
        }
        stream.it.capture = Some(Vec::new());
    }
    Context "cuStreamEndCapture" 10000 cuStreamEndCapture(s, stream: Handle, graph: *mut Handle) {
        let id = s.stream(stream)?;
        let stream = s.streams.get_mut(&id).ok_or(Code::ILLEGAL_STATE)?;
        let ops = stream.it.capture.take().ok_or(Code::ILLEGAL_STATE)?;
        let id = s.insert_graph(ops)?;
        put(graph, to_handle(id))?;
    }
    Context "cuStreamIsCapturing" 10000 cuStreamIsCapturing(s, stream: Handle, status: *mut c_uint) {
        let id = s.stream(stream)?;
        put(status, c_uint::from(s.streams.get(&id).is_some_and(|it| it.it.capture.is_some())))?;
    }
    Init "cuThreadExchangeStreamCaptureMode" 10010 cuThreadExchangeStreamCaptureMode(_s, mode: *mut c_uint) {
        // All modes are alike here; what was is what is.
        put(mode, get(mode)?)?;
    }
    Context "cuGraphCreate" 10000 cuGraphCreate(s, graph: *mut Handle, _flags: c_uint) {
        let id = s.insert_graph(Vec::new())?;
        put(graph, to_handle(id))?;
    }
    Context "cuGraphAddKernelNode" 12000 cuGraphAddKernelNode_v2(
        s, node: *mut Handle, graph: Handle, _dependencies: *const Handle, _n: usize, params: *const c_void,
    ) {
        let p: NodeParams = get(params.cast())?;
        let kernel = s.kernel(p.function, p.grid, p.block, p.shared_bytes, p.params, p.extra)?;
        let new = s.new_id();
        let State { graphs, nodes, .. } = s;
        let it = &mut graphs.get_mut(&to_id(graph)).ok_or(Code::INVALID_VALUE)?.it;
        put(node, to_handle(new))?;
        nodes.insert(new, (to_id(graph), it.ops.len()));
        it.ops.push(Op::Kernel(kernel));
        it.nodes.push(new);
    }
    Context "cuGraphGetNodes" 10000 cuGraphGetNodes(s, graph: Handle, nodes: *mut Handle, n_nodes: *mut usize) {
        let graph = s.graphs.get(&to_id(graph)).ok_or(Code::INVALID_VALUE)?;
        let n_found = graph.it.nodes.len();
        if nodes.is_null() {
            put(n_nodes, n_found)?;
            return Ok(());
        }
        let n_wanted = get(n_nodes)?;
        for index in 0..n_wanted {
            let node = graph.it.nodes.get(index).map_or(std::ptr::null_mut(), |&id| to_handle(id));
            put(nodes.wrapping_add(index), node)?;
        }
        put(n_nodes, n_found.min(n_wanted))?;
    }
    Context "cuGraphNodeGetType" 10000 cuGraphNodeGetType(s, node: Handle, kind: *mut c_uint) {
        put(kind, match s.node(node)? {
            Op::Kernel(_) => 0,
            Op::Fill { .. } => 2,
            _ => 1,
        })?;
    }
    Context "cuGraphInstantiate" 11040 cuGraphInstantiateWithFlags(s, exec: *mut Handle, graph: Handle, _flags: u64) {
        s.instantiate(exec, graph)?;
    }
    Context "cuGraphInstantiateWithParams" 12000 cuGraphInstantiateWithParams(s, exec: *mut Handle, graph: Handle, _params: *mut c_void) {
        s.instantiate(exec, graph)?;
    }
    Context "cuGraphUpload" 11010 cuGraphUpload(s, exec: Handle, stream: Handle) {
        s.stream(stream)?;
        s.execs.get(&to_id(exec)).ok_or(Code::INVALID_VALUE)?;
    }
    Context "cuGraphLaunch" 10000 cuGraphLaunch(s, exec: Handle, stream: Handle) {
        let id = s.stream(stream)?;
        if s.streams.get(&id).is_some_and(|it| it.it.capture.is_some()) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let owned = s.execs.get_mut(&to_id(exec)).ok_or(Code::INVALID_VALUE)?;
        // Taken out for the time of the launch, so that the state is free to be changed.
        let ops = std::mem::take(&mut owned.it.ops);
        s.stats.n_graph_launches += 1;
        let mut result = Ok(());
        for op in &ops {
            result = s.perform(op);
            // Nothing runs after a fault.
            if result.is_err() || s.ready(crate::call::Needs::Context).is_err() {
                break;
            }
        }
        if let Some(owned) = s.execs.get_mut(&to_id(exec)) {
            owned.it.ops = ops;
        }
        result?;
    }
    Context "cuGraphExecKernelNodeSetParams" 12000 cuGraphExecKernelNodeSetParams_v2(s, exec: Handle, node: Handle, params: *const c_void) {
        let p: NodeParams = get(params.cast())?;
        let mut kernel = s.kernel(p.function, p.grid, p.block, p.shared_bytes, p.params, p.extra)?;
        let owned = s.execs.get(&to_id(exec)).ok_or(Code::INVALID_VALUE)?;
        let index = owned.it.nodes.iter().position(|&id| id == to_id(node)).ok_or(Code::INVALID_VALUE)?;
        match &owned.it.ops[index] {
            Op::Kernel(old) => kernel.attributes = old.attributes,
            _ => return Err(Code::INVALID_VALUE),
        }
        s.check_attributes(&kernel)?;
        let owned = s.execs.get_mut(&to_id(exec)).ok_or(Code::INVALID_VALUE)?;
        owned.it.ops[index] = Op::Kernel(kernel);
    }
    Context "cuGraphExecUpdate" 12000 cuGraphExecUpdate_v2(s, exec: Handle, graph: Handle, info: *mut c_void) {
        let ops = s.graphs.get(&to_id(graph)).ok_or(Code::INVALID_VALUE)?.it.ops.clone();
        let owned = s.execs.get_mut(&to_id(exec)).ok_or(Code::INVALID_VALUE)?;
        let old = &owned.it.ops;
        let same = old.len() == ops.len() && old.iter().zip(&ops).all(|(a, b)| same_kind(a, b));
        if !info.is_null() {
            let null = std::ptr::null_mut();
            put(info.cast(), UpdateResult { result: if same { 0 } else { 2 }, node: null, from: null })?;
        }
        if !same {
            return Err(Code::UPDATE_FAILURE);
        }
        owned.it.ops = ops;
    }
    Context "cuGraphExecDestroy" 10000 cuGraphExecDestroy(s, exec: Handle) {
        s.execs.remove(&to_id(exec)).ok_or(Code::INVALID_VALUE)?;
    }
    Context "cuGraphDestroy" 10000 cuGraphDestroy(s, graph: Handle) {
        let graph = s.graphs.remove(&to_id(graph)).ok_or(Code::INVALID_VALUE)?;
        for node in graph.it.nodes {
            s.nodes.remove(&node);
        }
    }
    Context "cuGraphKernelNodeGetAttribute" 11000 cuGraphKernelNodeGetAttribute(s, node: Handle, attribute: c_uint, value: *mut c_void) {
        match s.node(node)? {
            Op::Kernel(kernel) => kernel.attributes.get(attribute, value)?,
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    Context "cuGraphKernelNodeSetAttribute" 11000 cuGraphKernelNodeSetAttribute(s, node: Handle, attribute: c_uint, value: *const c_void) {
        let mut kernel = match s.node(node)? {
            Op::Kernel(kernel) => kernel.clone(),
            _ => return Err(Code::INVALID_VALUE),
        };
        kernel.attributes.set(attribute, value.cast())?;
        s.check_attributes(&kernel)?;
        let &(graph, index) = s.nodes.get(&to_id(node)).ok_or(Code::INVALID_VALUE)?;
        let graph = s.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
        graph.it.ops[index] = Op::Kernel(kernel);
    }
}
