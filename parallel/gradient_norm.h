// The norm of gradients that lie in parts on the ranks of a mesh.
#pragma once

#include <span>

#include "axis.h"

namespace tutti::parallel {

/// Each rank passes the sum of squares of its gradients. The result covers all ranks of `axes`:
/// those that share the other coordinates with this rank. Where parts overlap, only one rank may
/// count them. All these ranks get the same bits, whatever their places: they add in the order of
/// the ranks, and not as an all-reduce over other links might. So all of them see alike that the
/// norm is not finite, or too large. It is infinite from 1e154 on too, where squares no longer fit
/// into a float64.
double gradient_norm(double squares, std::span<Axis* const> axes);

}  // namespace tutti::parallel
