// The loops of the predefined operators, of one kind of element each.
#pragma once

#include <cstddef>

#include "bindings/mpi/op.h"

namespace tutti::mpi {

/// in_out[i] = in[i] op in_out[i] for n elements, at any addresses.
using Kernel = void (*)(const void* in, void* in_out, std::size_t n);

/// The loop of an operator and an element; null where the standard defines none.
Kernel kernel_of(Operator::Kind kind, Element element);

/// MINLOC or MAXLOC of n pairs, `stride` bytes apart.
void combine_pairs(bool largest, const Type::Pair& pair, std::size_t stride, const void* in,
                   void* in_out, std::size_t n);
/// Whether a pair of these elements can be compared.
bool has_pair_kernel(const Type::Pair& pair);

}  // namespace tutti::mpi
