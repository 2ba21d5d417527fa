//! Floats as whole numbers.

use num_traits::AsPrimitive;

/// The whole part of a number: the nearest end of the type where it lies beyond, and 0 where it is
/// none.
pub fn whole<T: Copy + 'static>(number: f64) -> T
where
    f64: AsPrimitive<T>,
{
    number.as_()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_type_cannot_hold_becomes_its_nearest_end() {
        assert_eq!((whole::<u32>(2.9), whole::<u32>(-1.5), whole::<i32>(-1.5)), (2, 0, -1));
        assert_eq!((whole::<u32>(1e12), whole::<u64>(f64::INFINITY)), (u32::MAX, u64::MAX));
        assert_eq!(whole::<u64>(f64::NAN), 0);
    }
}
