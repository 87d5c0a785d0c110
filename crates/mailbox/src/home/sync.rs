//! The lock of a room: `parking_lot`'s, or one whose schedules the shuttle tests explore.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::Mutex;

#[cfg(shuttle)]
#[derive(Debug)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(shuttle)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a test that panicked has ended")
    }
}
