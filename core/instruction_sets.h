// The instruction sets for which loops on vectors are compiled; for files that Highway's
// foreach_target.h includes again for each, before that. All such files have the same ones: they
// share conversions (combine_vectors-inl.h).
//
// SSSE3 is left out: every machine of interest has SSE4. The targets with vectors of no fixed size
// at compile time are left out, too: the loops keep vectors in arrays. ARM machines use NEON.
#pragma once

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
