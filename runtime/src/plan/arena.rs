//! Placement of the buffers between kernels in one arena.
//!
//! The largest buffer is placed first; each next one goes into the smallest gap between the placed
//! buffers that are live with it, or behind them. Dynamic storage allocation is NP-hard; this order
//! stays within a few per cent of the peak of live bytes on our models, and both are reported.

/// Alignment of every buffer that is not a part of another one: the widest vector access and the
/// sector of an L2 cache line fit in it many times over.
pub const ARENA_ALIGN_BYTES: u64 = 256;

/// When a buffer is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLife {
    /// Size.
    pub n_bytes: u64,
    /// Index of the step that writes it first.
    pub first: usize,
    /// Index of the last step that reads (or writes) it; not before `first`.
    pub last: usize,
    /// Set if the bytes are a part of another buffer, which then lives as long as its parts.
    pub part_of: Option<Part>,
}

/// Where a part lies in the buffer that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the buffer, which may itself be a part.
    pub parent: usize,
    /// First byte in it.
    pub offset_bytes: u64,
}

/// Where the buffers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaPlan {
    /// First byte of each buffer, in the order of the buffers.
    pub offsets_bytes: Vec<u64>,
    /// Size of the arena.
    pub arena_bytes: u64,
    /// Most bytes that are live at one step: no placement needs less.
    pub live_peak_bytes: u64,
    /// Bytes that buffers would take if none were reused.
    pub sum_bytes: u64,
}

/// Lives that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The last step is before the first.
    #[error("buffer {buffer} is last used at step {last}, before step {first} that writes it")]
    Backwards {
        /// Index.
        buffer: usize,
        /// First step.
        first: usize,
        /// Last step.
        last: usize,
    },
    /// Part of something that does not exist, or of itself.
    #[error(
        "buffer {buffer} is a part of buffer {parent}, which does not exist or is a part of it"
    )]
    Parent {
        /// Index.
        buffer: usize,
        /// What it names.
        parent: usize,
    },
    /// Larger than what it is a part of.
    #[error(
        "buffer {buffer}: bytes {offset_bytes} to {end_bytes} of buffer {parent}, which has {parent_bytes}"
    )]
    Part {
        /// Index.
        buffer: usize,
        /// What it is a part of.
        parent: usize,
        /// First byte.
        offset_bytes: u64,
        /// Byte behind the last.
        end_bytes: u64,
        /// Size of the parent.
        parent_bytes: u64,
    },
}

/// Places buffers so that no two that are live at the same step overlap, parts excepted.
///
/// Deterministic: equal lives give equal places. Takes O(n²) time for n buffers.
///
/// # Errors
///
/// If a buffer ends before it starts, or is a part of something that cannot hold it.
pub fn plan_arena(lives: &[BufferLife]) -> Result<ArenaPlan, ArenaError> {
    let mut roots = Vec::with_capacity(lives.len());
    for (buffer, life) in lives.iter().enumerate() {
        if life.last < life.first {
            return Err(ArenaError::Backwards { buffer, first: life.first, last: life.last });
        }
        roots.push(root(lives, buffer)?);
    }
    // A whole buffer is live as long as any of its parts.
    let mut whole: Vec<BufferLife> = lives.to_vec();
    for (buffer, &(owner, _)) in roots.iter().enumerate() {
        whole[owner].first = whole[owner].first.min(lives[buffer].first);
        whole[owner].last = whole[owner].last.max(lives[buffer].last);
    }
    let mut order: Vec<usize> =
        (0..lives.len()).filter(|&buffer| lives[buffer].part_of.is_none()).collect();
    order.sort_by_key(|&buffer| {
        (std::cmp::Reverse(whole[buffer].n_bytes), whole[buffer].first, buffer)
    });

    let mut offsets = vec![0u64; lives.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut arena_bytes = 0;
    for &buffer in &order {
        let size = aligned(whole[buffer].n_bytes);
        let together = |other: usize| {
            whole[other].first <= whole[buffer].last && whole[buffer].first <= whole[other].last
        };
        let mut busy: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&other| together(other))
            .map(|&other| (offsets[other], offsets[other] + aligned(whole[other].n_bytes)))
            .collect();
        busy.sort_unstable();
        let mut best: Option<(u64, u64)> = None; // (width of the gap, its start)
        let mut free_from = 0;
        for (from, to) in busy {
            if from > free_from
                && from - free_from >= size
                && best.is_none_or(|(width, _)| from - free_from < width)
            {
                best = Some((from - free_from, free_from));
            }
            free_from = free_from.max(to);
        }
        offsets[buffer] = best.map_or(free_from, |(_, start)| start);
        arena_bytes = arena_bytes.max(offsets[buffer] + size);
        placed.push(buffer);
    }
    for (buffer, &(owner, offset_bytes)) in roots.iter().enumerate() {
        if owner != buffer {
            offsets[buffer] = offsets[owner] + offset_bytes;
        }
    }
    let live_at = |step: usize| -> u64 {
        let live = order.iter().filter(|&&b| whole[b].first <= step && step <= whole[b].last);
        live.map(|&b| aligned(whole[b].n_bytes)).sum()
    };
    // The peak is reached when some buffer is written first.
    let live_peak_bytes =
        order.iter().map(|&buffer| live_at(whole[buffer].first)).max().unwrap_or(0);
    let sum_bytes = order.iter().map(|&buffer| aligned(whole[buffer].n_bytes)).sum();
    Ok(ArenaPlan { offsets_bytes: offsets, arena_bytes, live_peak_bytes, sum_bytes })
}

fn aligned(n_bytes: u64) -> u64 {
    n_bytes.next_multiple_of(ARENA_ALIGN_BYTES)
}

/// The buffer that `buffer` is ultimately a part of, and where it lies in it.
fn root(lives: &[BufferLife], buffer: usize) -> Result<(usize, u64), ArenaError> {
    let (mut at, mut offset) = (buffer, 0);
    for _ in 0..=lives.len() {
        let Some(part) = lives[at].part_of else { return Ok((at, offset)) };
        let Some(parent) = lives.get(part.parent) else {
            return Err(ArenaError::Parent { buffer: at, parent: part.parent });
        };
        let end_bytes = part.offset_bytes.saturating_add(lives[at].n_bytes);
        if end_bytes > parent.n_bytes {
            let Part { parent, offset_bytes } = part;
            let parent_bytes = lives[parent].n_bytes;
            return Err(ArenaError::Part {
                buffer: at,
                parent,
                offset_bytes,
                end_bytes,
                parent_bytes,
            });
        }
        offset += part.offset_bytes;
        at = part.parent;
    }
    Err(ArenaError::Parent { buffer, parent: at })
}
