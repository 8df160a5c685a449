// A thin layer: arguments become an Operation (operation.h), which runs without the GIL.
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/python/communicator.h"
#include "bindings/python/operation.h"

namespace tutti::python {
namespace {

using Self = PythonCommunicator&;

}  // namespace

using namespace nb::literals;

void bind_collectives(nb::class_<PythonCommunicator>& c) {
  c.def(
      "all_reduce",
      [](Self self, nb::handle x, nb::object out, nb::handle op, bool async_op,
         std::uintptr_t stream, bool compressed) {
        return self.call(async_op, stream, [&](Operation& o) {
          all_reduce(o, x, std::move(out), op);
          o.call.compressed = compressed;
        });
      },
      "x"_a, "out"_a = nb::none(), "op"_a = "sum", nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0, "compressed"_a = false,
      "Reduces x over all ranks, elementwise; every rank gets the same bits.\n\n"
      "x: any shape, the same on all ranks. In place unless `out` is given. Returns the result.\n"
      "op: \"sum\", \"prod\", \"min\", \"max\", \"avg\" or pre_multiplied_sum(scalar).\n"
      "compressed: 8 bits travel for an element, on all ranks, and the result is approximate\n"
      "(docs/low-precision.md): of float16, bfloat16 and float32, sums and averages.");
  c.def(
      "reduce",
      [](Self self, nb::handle x, nb::object out, nb::handle op, int root, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          reduce(o, self.ranks(), x, std::move(out), op, root);
        });
      },
      "x"_a, "out"_a = nb::none(), "op"_a = "sum", "root"_a = 0, nb::kw_only(),
      "async_op"_a = false, "stream"_a = 0,
      "As all_reduce, but only `root` gets the result (in place unless `out` is given there), and\n"
      "the others None.");
  c.def(
      "reduce_scatter",
      [](Self self, nb::handle x, nb::object out, nb::handle op, bool async_op,
         std::uintptr_t stream, bool compressed) {
        return self.call(async_op, stream, [&](Operation& o) {
          reduce_scatter(o, self.ranks(), x, std::move(out), op);
          o.call.compressed = compressed;
        });
      },
      "x"_a, "out"_a = nb::none(), "op"_a = "sum", nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0, "compressed"_a = false,
      "Reduces x, and gives each rank its part: x of shape (size * n, ...) becomes (n, ...).\n\n"
      "compressed: as for all_reduce.");
  c.def(
      "reduce_scatter_v",
      [](Self self, nb::handle x, std::vector<std::size_t> counts, nb::object out, nb::handle op,
         bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          reduce_scatter_v(o, self.ranks(), x, std::move(counts), std::move(out), op);
        });
      },
      "x"_a, "counts"_a, "out"_a = nb::none(), "op"_a = "sum", nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0, "As reduce_scatter, with counts[r] elements for rank r.");
  c.def(
      "all_gather",
      [](Self self, nb::handle x, nb::object out, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { all_gather(o, self.ranks(), x, std::move(out)); });
      },
      "x"_a, "out"_a = nb::none(), nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Every rank gets the x of all: shape (size, *x.shape).");
  c.def(
      "all_gather_v",
      [](Self self, nb::handle x, std::vector<std::size_t> counts, nb::object out, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          all_gather_v(o, self.ranks(), x, std::move(counts), std::move(out));
        });
      },
      "x"_a, "counts"_a, "out"_a = nb::none(), nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "As all_gather, with counts[r] elements from rank r, one after the other.");
  c.def(
      "broadcast",
      [](Self self, nb::handle x, int root, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { broadcast(o, x, self.ranks(), root); });
      },
      "x"_a, "root"_a = 0, nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "x of `root` comes into the x of all others. Returns x.");
  c.def(
      "gather",
      [](Self self, nb::handle x, nb::object out, int root, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { gather(o, self.ranks(), x, std::move(out), root); });
      },
      "x"_a, "out"_a = nb::none(), "root"_a = 0, nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0, "`root` gets the x of all, shape (size, *x.shape); the others None.");
  c.def(
      "scatter",
      [](Self self, nb::handle x, nb::object out, int root, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { scatter(o, self.ranks(), x, std::move(out), root); });
      },
      "x"_a.none(), "out"_a = nb::none(), "root"_a = 0, nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0,
      "Each rank gets its part of the root's x: shape (size * n, ...) becomes (n, ...). Ranks\n"
      "other than the root give `out`; their x may be None.");
  c.def(
      "all_to_all",
      [](Self self, nb::handle x, nb::object out, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { all_to_all(o, self.ranks(), x, std::move(out)); });
      },
      "x"_a, "out"_a = nb::none(), nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Part i of x goes to rank i, and part j of the result comes from rank j, where x has\n"
      "`size` parts along its first dimension.");
  c.def(
      "all_to_all_v",
      [](Self self, nb::handle x, std::vector<std::size_t> in_counts,
         std::vector<std::size_t> out_counts, nb::object out, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          all_to_all_v(o, self.ranks(), x, std::move(in_counts), std::move(out_counts),
                       std::move(out));
        });
      },
      "x"_a, "in_counts"_a, "out_counts"_a, "out"_a = nb::none(), nb::kw_only(),
      "async_op"_a = false, "stream"_a = 0,
      "As all_to_all: in_counts[r] elements go to rank r, out_counts[r] come from it.");
  c.def(
      "send",
      [](Self self, nb::handle x, int peer, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) { send(o, x, peer); });
      },
      "x"_a, "peer"_a, nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Sends x to rank `peer`, which calls recv(); it may return before that. Messages of two\n"
      "ranks are matched in their order.");
  c.def(
      "recv",
      [](Self self, nb::handle x, int peer, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) { recv(o, x, peer); });
      },
      "x"_a, "peer"_a, nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Receives from rank `peer` into x. Returns x.");
  c.def(
      "barrier",
      [](Self self, bool async_op) {
        return self.call(async_op, 0,
                         [](Operation& o) { o.call.collective = Collective::barrier; });
      },
      nb::kw_only(), "async_op"_a = false, "Returns when all ranks have called it.");
}

}  // namespace tutti::python
