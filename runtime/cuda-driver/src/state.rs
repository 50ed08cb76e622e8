//! Everything the driver knows: contexts, allocations, modules, streams, events and graphs.
//!
//! Invariant: whatever is in a table belongs to a context of [`State::contexts`]; when that ends, so
//! does everything of it.

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use eggine_cpu::{Memory, Module};

use crate::call::Needs;
use crate::config::Config;
use crate::extra::Stats;
use crate::graph::Op;
use crate::result::{Code, Done};

/// An opaque handle of the API.
pub(crate) type Handle = *mut c_void;

pub(crate) static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

thread_local! {
    /// The context stack of this thread; the last is current.
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A context.
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) is_primary: bool,
    /// Why every call fails.
    pub(crate) lost: Option<Code>,
}

/// The primary context of a device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Primary {
    /// Its id, the same for ever.
    pub(crate) id: u64,
    pub(crate) n_retained: usize,
    /// Retained before a reset and not yet released: such a release is no error.
    pub(crate) n_stale: usize,
    pub(crate) flags: u32,
}

/// Something that belongs to a context.
pub(crate) struct Owned<T> {
    pub(crate) ctx: u64,
    pub(crate) it: T,
}

/// Host memory that the driver gave out or was told about.
pub(crate) enum HostMemory {
    Allocated(Layout),
    Registered,
}

/// A function of a module.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) module: Arc<Module>,
    pub(crate) entry: String,
    pub(crate) dynamic_shared_bytes: i32,
    pub(crate) carveout: i32,
}

/// A loaded module: its functions are found by name once each.
pub(crate) struct LoadedModule {
    pub(crate) module: Arc<Module>,
    pub(crate) ptx_version: i32,
    pub(crate) functions: BTreeMap<String, u64>,
}

/// A stream: in order by itself, so all that there is to know is whether it records.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) capture: Option<Vec<Op>>,
}

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    pub(crate) recorded: Option<Instant>,
    pub(crate) is_timed: bool,
}

/// A graph: its operations in order, and the handles of its nodes.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) ops: Vec<Op>,
    pub(crate) nodes: Vec<u64>,
}

/// An instantiated graph. It keeps the handles of the graph that it is of, for updates.
pub(crate) struct GraphExec {
    pub(crate) ops: Vec<Op>,
    pub(crate) nodes: Vec<u64>,
}

/// See the [module](self).
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) is_initialised: bool,
    pub(crate) memory: Memory,
    /// By base: owner and size.
    pub(crate) allocations: BTreeMap<u64, Owned<usize>>,
    pub(crate) host: BTreeMap<usize, Owned<HostMemory>>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) modules: BTreeMap<u64, Owned<LoadedModule>>,
    pub(crate) functions: BTreeMap<u64, Owned<Function>>,
    pub(crate) streams: BTreeMap<u64, Owned<Stream>>,
    pub(crate) events: BTreeMap<u64, Owned<Event>>,
    pub(crate) graphs: BTreeMap<u64, Owned<Graph>>,
    pub(crate) execs: BTreeMap<u64, Owned<GraphExec>>,
    /// Graph and index of each node.
    pub(crate) nodes: BTreeMap<u64, (u64, usize)>,
    /// Calls still to come before one fails, and how; 1 is the next.
    pub(crate) fail: Option<(u64, Code)>,
    /// What the last fault was, in the words of the executor.
    pub(crate) fault: Option<CString>,
    pub(crate) stats: Stats,
    n_ids: u64,
}

// SAFETY: raw pointers in recorded operations are addresses of the caller's, used under the lock.
unsafe impl Send for State {}

impl State {
    fn new() -> Self {
        let config = Config::from_environment();
        let mut state = Self {
            is_initialised: false,
            memory: Memory::new(),
            allocations: BTreeMap::new(),
            host: BTreeMap::new(),
            contexts: BTreeMap::new(),
            primaries: Vec::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            fail: config.fail.map(|(n, code)| (n, Code(code))),
            fault: None,
            stats: Stats::default(),
            n_ids: 0,
            config,
        };
        for _ in 0..state.config.n_devices {
            let id = state.new_id();
            state.primaries.push(Primary { id, ..Primary::default() });
        }
        state
    }

    /// A new id. Handles are made of ids, which are never used twice.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.n_ids += 1;
        self.n_ids
    }

    /// The code that this call is to fail with, if it is the one.
    pub(crate) fn injected(&mut self) -> Option<Code> {
        let (n_left, code) = self.fail?;
        if n_left > 1 {
            self.fail = Some((n_left - 1, code));
            return None;
        }
        self.fail = None;
        self.stats.n_injected += 1;
        if code.is_sticky() {
            self.lose(code);
        }
        Some(code)
    }

    /// Whether what a function needs is there.
    pub(crate) fn ready(&self, needs: Needs) -> Done {
        if needs != Needs::Nothing && !self.is_initialised {
            return Err(Code::NOT_INITIALIZED);
        }
        if needs == Needs::Context {
            let lost = self.contexts.get(&self.current()?).and_then(|ctx| ctx.lost);
            return lost.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// The current context of this thread.
    pub(crate) fn current(&self) -> Done<u64> {
        let id = CURRENT.with_borrow(|stack| stack.last().copied()).ok_or(Code::INVALID_CONTEXT)?;
        if self.contexts.contains_key(&id) { Ok(id) } else { Err(Code::CONTEXT_DESTROYED) }
    }

    /// Makes a context current in place of what is (`None`: of nothing).
    pub(crate) fn set_current(&mut self, id: Option<u64>) {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.extend(id);
        });
    }

    /// Pushes a context.
    pub(crate) fn push_current(&mut self, id: u64) {
        CURRENT.with_borrow_mut(|stack| stack.push(id));
    }

    /// Pops a context.
    pub(crate) fn pop_current(&mut self) -> Done<u64> {
        CURRENT.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)
    }

    /// Makes every later call in the current context fail.
    pub(crate) fn lose(&mut self, code: Code) {
        if let Ok(id) = self.current()
            && let Some(ctx) = self.contexts.get_mut(&id)
        {
            ctx.lost.get_or_insert(code);
        }
    }

    /// Frees everything of a context, and the context.
    pub(crate) fn end_context(&mut self, id: u64) {
        self.contexts.remove(&id);
        self.modules.retain(|_, it| it.ctx != id);
        self.functions.retain(|_, it| it.ctx != id);
        self.streams.retain(|_, it| it.ctx != id);
        self.events.retain(|_, it| it.ctx != id);
        self.execs.retain(|_, it| it.ctx != id);
        self.graphs.retain(|_, it| it.ctx != id);
        let Self { nodes, graphs, .. } = self;
        nodes.retain(|_, (graph, _)| graphs.contains_key(graph));
        let of = |map: &BTreeMap<u64, Owned<usize>>| -> Vec<u64> {
            map.iter().filter(|(_, it)| it.ctx == id).map(|(&base, _)| base).collect()
        };
        for base in of(&self.allocations) {
            self.allocations.remove(&base);
            // It is in the table, so it is in the memory.
            let _ = self.memory.free(base);
        }
        let host: Vec<usize> =
            self.host.iter().filter(|(_, it)| it.ctx == id).map(|(&at, _)| at).collect();
        for address in host {
            self.free_host(address);
        }
    }

    /// Forgets host memory, and frees it if it is ours.
    pub(crate) fn free_host(&mut self, address: usize) {
        if let Some(Owned { it: HostMemory::Allocated(layout), .. }) = self.host.remove(&address) {
            // SAFETY: it was allocated with this layout, and leaves the table.
            unsafe { std::alloc::dealloc(address as *mut u8, layout) }
        }
    }

    /// Counts of what is alive now.
    pub(crate) fn stats(&self) -> Stats {
        let live_bytes: usize = self.allocations.values().map(|it| it.it).sum();
        let n_objects = self.modules.len()
            + self.streams.len()
            + self.events.len()
            + self.graphs.len()
            + self.execs.len()
            + self.host.len()
            + self.contexts.len();
        Stats {
            n_live_allocations: self.allocations.len() as u64,
            live_bytes: live_bytes as u64,
            n_live_objects: n_objects as u64,
            ..self.stats
        }
    }
}

/// Ids are spread over addresses that no process maps, so that one is never taken for a pointer.
pub(crate) fn to_handle(id: u64) -> Handle {
    (id as usize * 16) as Handle
}

/// The id of a handle; 0 for null, which no table has.
pub(crate) fn to_id(handle: Handle) -> u64 {
    let address = handle as usize;
    if address.is_multiple_of(16) { (address / 16) as u64 } else { 0 }
}
