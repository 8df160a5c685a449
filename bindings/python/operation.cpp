#include "bindings/python/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace tutti::python {
namespace {

using Access = Buffer::Access;
using Kind = ElementType::Kind;

template <class... Args>
[[noreturn]] void refuse(PyObject* exception, fmt::format_string<Args...> text, Args&&... args) {
  PyErr_SetString(exception, fmt::format(text, std::forward<Args>(args)...).c_str());
  throw nb::python_error();
}

/// A new array like `x`, in the shape `leading` + x.shape[skip:].
nb::object make_like(nb::handle x, const Buffer& in, std::optional<std::size_t> leading,
                     std::size_t skip) {
  nb::list shape;
  if (leading) shape.append(*leading);
  for (std::size_t d = skip; d < in.shape().size(); ++d) shape.append(in.shape()[d]);
  return nb::module_::import_("tutti.memory").attr("_like")(x, nb::tuple(shape));
}

const char* type_text(const ElementType& type) {
  switch (type.kind) {
    case Kind::boolean:
      return "bool";
    case Kind::complex:
      return "complex";
    case Kind::number:
      return name(type.type).data();
    case Kind::opaque:
      break;
  }
  return type.is_swapped ? "a type in another byte order (big-endian)" : "another type";
}

/// What has to be moved for `count` elements, as Tutti counts.
struct Amount {
  std::size_t count;
  DataType type;
};
Amount amount(const ElementType& element, std::size_t count) {
  switch (element.kind) {
    case Kind::complex:
      return {2 * count, element.type};
    case Kind::opaque:
      return {element.bytes * count, DataType::uint8};
    default:
      return {count, element.type};
  }
}

ReduceKind kind_of(std::string_view name) {
  if (name == "sum") return ReduceKind::sum;
  if (name == "prod") return ReduceKind::prod;
  if (name == "min") return ReduceKind::min;
  if (name == "max") return ReduceKind::max;
  if (name == "avg") return ReduceKind::avg;
  refuse(PyExc_ValueError,
         "op is \"{}\", but must be \"sum\", \"prod\", \"min\", \"max\", \"avg\" or "
         "tutti.pre_multiplied_sum(scalar)",
         name);
}

ReduceOp operator_for(const ElementType& element, nb::handle op) {
  if (element.is_swapped) {
    refuse(PyExc_TypeError,
           "elements of {} bytes in another byte order than this machine's (big-endian) cannot be "
           "reduced: convert them, as with x.astype(x.dtype.newbyteorder('='))",
           element.bytes);
  }
  if (element.kind == Kind::opaque) {
    refuse(PyExc_TypeError,
           "elements of {} bytes that are none of Tutti's types cannot be reduced: convert them",
           element.bytes);
  }
  if (!PyUnicode_Check(op.ptr())) {
    const nb::object scalar = nb::getattr(op, "scalar", nb::none());
    if (scalar.is_none()) {
      refuse(PyExc_TypeError, "op is a {}, but must be a name, as \"sum\"",
             nb::str(nb::getattr(op.type(), "__name__")).c_str());
    }
    if (element.kind == Kind::boolean) {
      refuse(PyExc_TypeError, "booleans cannot be multiplied by a scalar");
    }
    const auto factor = nb::cast<double>(scalar);
    if (!is_float(element.type) && factor != std::trunc(factor)) {
      refuse(PyExc_ValueError,
             "integers ({}) are not multiplied by {}: convert them to a float type",
             name(element.type), factor);
    }
    return ReduceOp::pre_multiplied_sum(element.type, factor);
  }
  const ReduceKind kind = kind_of(nb::cast<const char*>(op));
  if (element.kind == Kind::boolean) {
    if (kind == ReduceKind::avg) refuse(PyExc_TypeError, "booleans have no average");
    return kind == ReduceKind::sum || kind == ReduceKind::max ? ReduceKind::max : ReduceKind::min;
  }
  if (element.kind == Kind::complex && kind != ReduceKind::sum && kind != ReduceKind::avg) {
    refuse(PyExc_TypeError, "complex numbers can be summed and averaged, not reduced by \"{}\"",
           nb::cast<const char*>(op));
  }
  return kind;
}

void check_counts(const char* argument, const std::vector<std::size_t>& counts, int size) {
  if (counts.size() == static_cast<std::size_t>(size)) return;
  refuse(PyExc_ValueError, "{} has {} entries, but must have one for each of the {} ranks",
         argument, counts.size(), size);
}

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void check_size(const char* argument, const Buffer& buffer, std::size_t count, const char* why) {
  if (buffer.count() == count) return;
  refuse(PyExc_ValueError, "{} has {} elements (shape {}), but must have {}: {}", argument,
         buffer.count(), buffer.shape_text(), count, why);
}

/// The rows that each rank gets of an array of as many rows as there are ranks, or a multiple.
std::size_t rows_each(const Buffer& in, int size) {
  const std::int64_t rows = in.shape().empty() ? 0 : in.shape()[0];
  if (!in.shape().empty() && rows % size == 0) return static_cast<std::size_t>(rows / size);
  refuse(PyExc_ValueError,
         "x has the shape {}: its first dimension must be a multiple of the {} "
         "ranks",
         in.shape_text(), size);
}

/// The output: what the caller has given, or a new one.
void take_out(Operation& o, nb::object out) {
  o.out.emplace(out, Access::write, "out");
  o.result = std::move(out);
  if (o.in && !(o.in->element() == o.out->element())) {
    refuse(PyExc_TypeError, "x has elements of {} ({} bytes), and out of {} ({} bytes)",
           type_text(o.in->element()), o.in->element().bytes, type_text(o.out->element()),
           o.out->element().bytes);
  }
  if (o.in && o.in->on_gpu() != o.out->on_gpu()) {
    refuse(PyExc_ValueError, "one of x and out is on a GPU, the other is not");
  }
}

/// The label of a type that Tutti takes for another one.
std::uint16_t label_of(const ElementType& element) {
  constexpr std::size_t kLargest = 1024;
  switch (element.kind) {
    case Kind::boolean:
      return 1;
    case Kind::complex:
      return 2;
    case Kind::opaque:
      return static_cast<std::uint16_t>(3 + std::min(element.bytes, kLargest));
    default:
      return 0;
  }
}

void fill(Operation& o, Collective collective, std::size_t elements) {
  const ElementType& element = (o.in ? o.in : o.out)->element();
  const Amount a = amount(element, elements);
  o.call.label = label_of(element);
  o.call.collective = collective;
  o.call.in = o.in ? o.in->data() : nullptr;
  o.call.out = o.out ? o.out->data() : nullptr;
  o.call.count = a.count;
  o.call.type = a.type;
}

/// Turns counts of elements into what Tutti counts.
void scale(std::vector<std::size_t>& counts, const ElementType& element) {
  for (std::size_t& c : counts) c = amount(element, c).count;
}

/// `x` is read and written: nobody gave another output.
void take_in_place(Operation& o, nb::handle x) {
  o.out.emplace(x, Access::write, "x");
  o.result = nb::borrow(x);
}

}  // namespace

void all_reduce(Operation& o, nb::handle x, nb::object out, nb::handle op) {
  if (out.is_none()) {
    take_in_place(o, x);
  } else {
    o.in.emplace(x, Access::read, "x");
    take_out(o, std::move(out));
    check_size("out", *o.out, o.in->count(), "as many as x");
  }
  fill(o, Collective::all_reduce, o.out->count());
  if (!o.in) o.call.in = o.call.out;
  o.call.op = operator_for(o.out->element(), op);
}

void reduce(Operation& o, Ranks ranks, nb::handle x, nb::object out, nb::handle op, int root) {
  if (ranks.rank == root && out.is_none()) {
    take_in_place(o, x);
  } else {
    o.in.emplace(x, Access::read, "x");
    if (ranks.rank == root) {
      take_out(o, std::move(out));
      check_size("out", *o.out, o.in->count(), "as many as x");
    }
  }
  const Buffer& any = o.in ? *o.in : *o.out;
  fill(o, Collective::reduce, any.count());
  if (!o.in) o.call.in = o.call.out;
  o.call.op = operator_for(any.element(), op);
  o.call.root = root;
}

void reduce_scatter(Operation& o, Ranks ranks, nb::handle x, nb::object out, nb::handle op) {
  o.in.emplace(x, Access::read, "x");
  if (out.is_none()) out = make_like(x, *o.in, rows_each(*o.in, ranks.size), 1);
  take_out(o, std::move(out));
  const auto size = static_cast<std::size_t>(ranks.size);
  check_size("x", *o.in, o.out->count() * size, "those of out for each rank");
  fill(o, Collective::reduce_scatter, o.out->count());
  o.call.op = operator_for(o.in->element(), op);
}

void reduce_scatter_v(Operation& o, Ranks ranks, nb::handle x, std::vector<std::size_t> counts,
                      nb::object out, nb::handle op) {
  check_counts("counts", counts, ranks.size);
  o.in.emplace(x, Access::read, "x");
  const std::size_t mine = counts[static_cast<std::size_t>(ranks.rank)];
  if (out.is_none()) out = make_like(x, *o.in, mine, o.in->shape().size());
  take_out(o, std::move(out));
  check_size("x", *o.in, total(counts), "the sum of counts");
  check_size("out", *o.out, mine, "this rank's entry of counts");
  fill(o, Collective::reduce_scatter_v, 0);
  o.call.op = operator_for(o.in->element(), op);
  o.in_counts = std::move(counts);
  scale(o.in_counts, o.in->element());
  o.call.in_counts = o.in_counts;
}

void all_gather(Operation& o, Ranks ranks, nb::handle x, nb::object out) {
  o.in.emplace(x, Access::read, "x");
  const auto size = static_cast<std::size_t>(ranks.size);
  if (out.is_none()) out = make_like(x, *o.in, size, 0);
  take_out(o, std::move(out));
  check_size("out", *o.out, o.in->count() * size, "those of x from each rank");
  fill(o, Collective::all_gather, o.in->count());
}

void all_gather_v(Operation& o, Ranks ranks, nb::handle x, std::vector<std::size_t> counts,
                  nb::object out) {
  check_counts("counts", counts, ranks.size);
  o.in.emplace(x, Access::read, "x");
  if (out.is_none()) out = make_like(x, *o.in, total(counts), o.in->shape().size());
  take_out(o, std::move(out));
  check_size("x", *o.in, counts[static_cast<std::size_t>(ranks.rank)],
             "this rank's entry of counts");
  check_size("out", *o.out, total(counts), "the sum of counts");
  fill(o, Collective::all_gather_v, 0);
  o.out_counts = std::move(counts);
  scale(o.out_counts, o.in->element());
  o.call.out_counts = o.out_counts;
}

void broadcast(Operation& o, nb::handle x, Ranks ranks, int root) {
  if (ranks.rank == root) {
    o.in.emplace(x, Access::read, "x");
    o.result = nb::borrow(x);
  } else {
    take_in_place(o, x);
  }
  fill(o, Collective::broadcast, (o.in ? o.in : o.out)->count());
  // The root's output is its input, which stays as it is.
  if (o.in) o.call.out = o.in->data();
  o.call.root = root;
}

void gather(Operation& o, Ranks ranks, nb::handle x, nb::object out, int root) {
  o.in.emplace(x, Access::read, "x");
  if (ranks.rank == root) {
    const auto size = static_cast<std::size_t>(ranks.size);
    if (out.is_none()) out = make_like(x, *o.in, size, 0);
    take_out(o, std::move(out));
    check_size("out", *o.out, o.in->count() * size, "those of x from each rank");
  }
  fill(o, Collective::gather, o.in->count());
  o.call.root = root;
}

void scatter(Operation& o, Ranks ranks, nb::handle x, nb::object out, int root) {
  if (ranks.rank == root) {
    o.in.emplace(x, Access::read, "x");
    if (out.is_none()) out = make_like(x, *o.in, rows_each(*o.in, ranks.size), 1);
  } else if (out.is_none()) {
    refuse(PyExc_ValueError, "out is None: a rank that is not the root cannot know its shape");
  }
  take_out(o, std::move(out));
  if (o.in) {
    check_size("x", *o.in, o.out->count() * static_cast<std::size_t>(ranks.size),
               "those of out for each rank");
  }
  fill(o, Collective::scatter, o.out->count());
  o.call.root = root;
}

void all_to_all(Operation& o, Ranks ranks, nb::handle x, nb::object out) {
  o.in.emplace(x, Access::read, "x");
  (void)rows_each(*o.in, ranks.size);
  if (out.is_none()) out = make_like(x, *o.in, std::nullopt, 0);
  take_out(o, std::move(out));
  check_size("out", *o.out, o.in->count(), "as many as x");
  fill(o, Collective::all_to_all, o.in->count() / static_cast<std::size_t>(ranks.size));
}

void all_to_all_v(Operation& o, Ranks ranks, nb::handle x, std::vector<std::size_t> in_counts,
                  std::vector<std::size_t> out_counts, nb::object out) {
  check_counts("in_counts", in_counts, ranks.size);
  check_counts("out_counts", out_counts, ranks.size);
  o.in.emplace(x, Access::read, "x");
  if (out.is_none()) out = make_like(x, *o.in, total(out_counts), o.in->shape().size());
  take_out(o, std::move(out));
  check_size("x", *o.in, total(in_counts), "the sum of in_counts");
  check_size("out", *o.out, total(out_counts), "the sum of out_counts");
  fill(o, Collective::all_to_all_v, 0);
  o.in_counts = std::move(in_counts);
  o.out_counts = std::move(out_counts);
  scale(o.in_counts, o.in->element());
  scale(o.out_counts, o.in->element());
  o.call.in_counts = o.in_counts;
  o.call.out_counts = o.out_counts;
}

void send(Operation& o, nb::handle x, int peer) {
  o.in.emplace(x, Access::read, "x");
  fill(o, Collective::send_recv, o.in->count());
  o.call.sends = true;
  o.call.peer = peer;
}

void recv(Operation& o, nb::handle x, int peer) {
  take_in_place(o, x);
  fill(o, Collective::send_recv, o.out->count());
  o.call.peer = peer;
}

}  // namespace tutti::python
