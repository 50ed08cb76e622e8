//! Streams and events. Work is done when the call that asks for it returns, so waiting is counting.

use std::ffi::{c_int, c_uint};
use std::time::Instant;

use crate::call::put;
use crate::result::{Code, Done};
use crate::state::{Event, Handle, Owned, State, Stream, to_handle, to_id};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

impl State {
    /// The id of a stream; 0 for the default streams, which no table has.
    pub(crate) fn stream(&self, stream: Handle) -> Done<u64> {
        if (stream as usize) <= 2 {
            return Ok(0); // Null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
        }
        let id = to_id(stream);
        if self.streams.contains_key(&id) { Ok(id) } else { Err(Code::INVALID_HANDLE) }
    }

    fn is_capturing(&self, id: u64) -> bool {
        self.streams.get(&id).is_some_and(|it| it.it.capture.is_some())
    }

    fn event(&mut self, event: Handle) -> Done<&mut Event> {
        self.events.get_mut(&to_id(event)).map(|it| &mut it.it).ok_or(Code::INVALID_HANDLE)
    }

    fn elapsed_ms(&mut self, start: Handle, end: Handle) -> Done<f32> {
        let (start, end) = {
            let start = self.event(start)?;
            let start = (start.is_timed, start.recorded);
            let end = self.event(end)?;
            (start, (end.is_timed, end.recorded))
        };
        match (start, end) {
            ((true, Some(start)), (true, Some(end))) => {
                let forth = end.saturating_duration_since(start).as_secs_f64();
                let back = start.saturating_duration_since(end).as_secs_f64();
                Ok(((forth - back) * 1e3) as f32)
            }
            _ => Err(Code::INVALID_HANDLE),
        }
    }
}

fn create_stream(s: &mut State, stream: *mut Handle, flags: c_uint, priority: c_int) -> Done {
    let (ctx, id) = (s.current()?, s.new_id());
    put(stream, to_handle(id))?;
    s.streams.insert(id, Owned { ctx, it: Stream { flags, priority, capture: None } });
    Ok(())
}

export! { TABLE;
    Context "cuStreamCreate" 2000 cuStreamCreate(s, stream: *mut Handle, flags: c_uint) {
        create_stream(s, stream, flags, 0)?;
    }
    Context "cuStreamCreateWithPriority" 5050 cuStreamCreateWithPriority(s, stream: *mut Handle, flags: c_uint, priority: c_int) {
        create_stream(s, stream, flags, priority)?;
    }
    Context "cuStreamDestroy" 4000 cuStreamDestroy_v2(s, stream: Handle) {
        s.streams.remove(&to_id(stream)).ok_or(Code::INVALID_HANDLE)?;
    }
    Context "cuStreamGetFlags" 5050 cuStreamGetFlags(s, stream: Handle, flags: *mut c_uint) {
        let id = s.stream(stream)?;
        put(flags, s.streams.get(&id).map_or(0, |it| it.it.flags))?;
    }
    Context "cuStreamGetPriority" 5050 cuStreamGetPriority(s, stream: Handle, priority: *mut c_int) {
        let id = s.stream(stream)?;
        put(priority, s.streams.get(&id).map_or(0, |it| it.it.priority))?;
    }
    Context "cuStreamGetCtx" 9020 cuStreamGetCtx(s, stream: Handle, ctx: *mut Handle) {
        let id = s.stream(stream)?;
        let current = s.current()?;
        put(ctx, to_handle(s.streams.get(&id).map_or(current, |it| it.ctx)))?;
    }
    Context "cuStreamQuery" 2000 cuStreamQuery(s, stream: Handle) {
        let id = s.stream(stream)?;
        if s.is_capturing(id) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
    }
    Context "cuStreamSynchronize" 2000 cuStreamSynchronize(s, stream: Handle) {
        let id = s.stream(stream)?;
        s.stats.n_synchronisations += 1;
        if s.is_capturing(id) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
    }
    Context "cuStreamWaitEvent" 3020 cuStreamWaitEvent(s, stream: Handle, event: Handle, _flags: c_uint) {
        s.stream(stream)?;
        s.event(event)?;
    }
    Context "cuEventCreate" 2000 cuEventCreate(s, event: *mut Handle, flags: c_uint) {
        let (ctx, id) = (s.current()?, s.new_id());
        put(event, to_handle(id))?;
        let it = Event { recorded: None, is_timed: flags & DISABLE_TIMING == 0 };
        s.events.insert(id, Owned { ctx, it });
    }
    Context "cuEventDestroy" 4000 cuEventDestroy_v2(s, event: Handle) {
        s.events.remove(&to_id(event)).ok_or(Code::INVALID_HANDLE)?;
    }
    Context "cuEventRecord" 2000 cuEventRecord(s, event: Handle, stream: Handle) {
        let id = s.stream(stream)?;
        if s.is_capturing(id) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        s.event(event)?.recorded = Some(Instant::now());
    }
    Context "cuEventQuery" 2000 cuEventQuery(s, event: Handle) {
        s.event(event)?;
    }
    Context "cuEventSynchronize" 2000 cuEventSynchronize(s, event: Handle) {
        s.stats.n_synchronisations += 1;
        s.event(event)?;
    }
    Context "cuEventElapsedTime" 2000 cuEventElapsedTime(s, ms: *mut f32, start: Handle, end: Handle) {
        let elapsed = s.elapsed_ms(start, end)?;
        put(ms, elapsed)?;
    }
    Context "cuEventElapsedTime" 12080 cuEventElapsedTime_v2(s, ms: *mut f32, start: Handle, end: Handle) {
        let elapsed = s.elapsed_ms(start, end)?;
        put(ms, elapsed)?;
    }
}
