// The norm of gradients that the ranks of a mesh have parts of.
#pragma once

#include <span>

#include "axis.h"

namespace tutti::parallel {

/// Of gradients of which this rank's have this sum of squares, and the other ranks of `axes`
/// theirs: of all that share the other coordinates with it. Where parts overlap, only one rank may
/// count them. All those ranks get the same bits, whatever their places: sums are added in the
/// order of the ranks, and not as an all-reduce over other links might add them. So all of them see
/// alike that the norm is not finite, or too large. It is infinite from 1e154 on, too, where
/// squares are no float64 any more.
double gradient_norm(double squares, std::span<Axis* const> axes);

}  // namespace tutti::parallel
