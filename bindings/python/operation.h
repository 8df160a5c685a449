// One call from Python: the memory of its arguments, which it holds until it is over, the Call for
// Tutti, and the result for Python.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "bindings/python/buffer.h"
#include "comm/communicator.h"

namespace tutti::python {

struct Operation {
  std::optional<Buffer> in, out;
  std::vector<std::size_t> in_counts, out_counts;  // of the v-variants
  Call call;
  nb::object result = nb::none();

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  bool on_gpu() const { return (in && in->on_gpu()) || (out && out->on_gpu()); }
};

// Each fills an Operation from Python's arguments, of a rank of `size` ranks, and checks shapes and
// types; throws TypeError, ValueError or BufferError. `out`: None if the function should make it
// (like `in`, in window memory), or if the call is in place.

struct Ranks {
  int rank = 0, size = 1;
};

void all_reduce(Operation& o, nb::handle x, nb::object out, nb::handle op);
void reduce(Operation& o, Ranks ranks, nb::handle x, nb::object out, nb::handle op, int root);
void reduce_scatter(Operation& o, Ranks ranks, nb::handle x, nb::object out, nb::handle op);
void reduce_scatter_v(Operation& o, Ranks ranks, nb::handle x, std::vector<std::size_t> counts,
                      nb::object out, nb::handle op);
void all_gather(Operation& o, Ranks ranks, nb::handle x, nb::object out);
void all_gather_v(Operation& o, Ranks ranks, nb::handle x, std::vector<std::size_t> counts,
                  nb::object out);
void broadcast(Operation& o, nb::handle x, Ranks ranks, int root);
void gather(Operation& o, Ranks ranks, nb::handle x, nb::object out, int root);
void scatter(Operation& o, Ranks ranks, nb::handle x, nb::object out, int root);
void all_to_all(Operation& o, Ranks ranks, nb::handle x, nb::object out);
void all_to_all_v(Operation& o, Ranks ranks, nb::handle x, std::vector<std::size_t> in_counts,
                  std::vector<std::size_t> out_counts, nb::object out);
void send(Operation& o, nb::handle x, int peer);
void recv(Operation& o, nb::handle x, int peer);

}  // namespace tutti::python
