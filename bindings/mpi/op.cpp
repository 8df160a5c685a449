#include "bindings/mpi/op.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

#include "bindings/mpi/error.h"
#include "bindings/mpi/op_kernels.h"
#include "bindings/mpi/procedures.h"
#include "core/combine.h"
#include "core/float_environment.h"

namespace tutti::mpi {
namespace {

using Kind = Operator::Kind;

struct Row {
  MPI_Op handle;
  const char* name;
  Kind kind;
};

const Row kOperators[] = {
    {MPI_SUM, "MPI_SUM", Kind::sum},
    {MPI_PROD, "MPI_PROD", Kind::prod},
    {MPI_MIN, "MPI_MIN", Kind::min},
    {MPI_MAX, "MPI_MAX", Kind::max},
    {MPI_LAND, "MPI_LAND", Kind::logical_and},
    {MPI_LOR, "MPI_LOR", Kind::logical_or},
    {MPI_LXOR, "MPI_LXOR", Kind::logical_xor},
    {MPI_BAND, "MPI_BAND", Kind::bit_and},
    {MPI_BOR, "MPI_BOR", Kind::bit_or},
    {MPI_BXOR, "MPI_BXOR", Kind::bit_xor},
    {MPI_MINLOC, "MPI_MINLOC", Kind::min_location},
    {MPI_MAXLOC, "MPI_MAXLOC", Kind::max_location},
    {MPI_REPLACE, "MPI_REPLACE", Kind::replace},
    {MPI_NO_OP, "MPI_NO_OP", Kind::no_op},
};

const char* name_of(Kind kind) {
  for (const Row& row : kOperators) {
    if (row.kind == kind) return row.name;
  }
  return "the operator";
}

bool is_location(Kind kind) { return kind == Kind::min_location || kind == Kind::max_location; }

/// Tutti's operator, if it computes the same.
std::optional<ReduceKind> native_kind(Kind kind) {
  switch (kind) {
    case Kind::sum:
      return ReduceKind::sum;
    case Kind::prod:
      return ReduceKind::prod;
    case Kind::min:
      return ReduceKind::min;
    case Kind::max:
      return ReduceKind::max;
    default:
      return std::nullopt;
  }
}

std::optional<Operator::Native> native_of(Kind kind, Element element) {
  const ElementProperties& of = properties(element);
  const auto same = native_kind(kind);
  if (!same || !of.native) return std::nullopt;
  if (of.kind == ElementClass::complex && kind != Kind::sum) return std::nullopt;
  return Operator::Native{*of.native, *same, of.natives};
}

bool is_defined(Kind kind, Element element) {
  return kernel_of(kind, element) != nullptr || native_of(kind, element).has_value();
}

/// A predefined type, perhaps under another name.
bool is_plain(const Type& type) {
  switch (type.contents().combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
      return type.elements() == 1;
    default:
      return false;
  }
}

}  // namespace

const Type* pairs_of(const Type& type) {
  if (type.pair()) return &type;
  const Type* found = nullptr;
  for (const TypeRef& part : type.contents().types) {
    if (part->size() == 0) continue;
    const Type* const one = pairs_of(*part);
    if (one == nullptr) return nullptr;
    if (found != nullptr && (one->pair()->value != found->pair()->value ||
                             one->pair()->index != found->pair()->index)) {
      return nullptr;
    }
    found = one;
  }
  return found;
}

void Operator::check(const Type& type, bool derived) const {
  if (kind_ == Kind::function || kind_ == Kind::no_op || kind_ == Kind::replace) return;
  if (derived && type.size() == 0) return;
  if (is_location(kind_)) {
    const Type* const pairs = derived ? pairs_of(type) : &type;
    if (pairs == nullptr || !pairs->pair() || !has_pair_kernel(*pairs->pair())) {
      fail(MPI_ERR_OP, "{} is defined on pairs of a value and an index, such as MPI_DOUBLE_INT",
           name_of(kind_));
    }
    return;
  }
  const bool known = (is_plain(type) || (derived && type.element())) && !type.pair();
  if (!known) {
    fail(
        MPI_ERR_OP,
        "{} is defined on predefined types alone; a type of your own needs an operator of your own",
        name_of(kind_));
  }
  if (!is_defined(kind_, *type.element())) {
    fail(MPI_ERR_OP, "{} is not defined on {}", name_of(kind_), properties(*type.element()).name);
  }
}

bool Operator::takes(Element element) const {
  if (kind_ == Kind::no_op || kind_ == Kind::replace) return true;
  return kind_ != Kind::function && !is_location(kind_) && is_defined(kind_, element);
}

std::optional<Operator::Native> Operator::native(const Type& type) const {
  if (!type.element() || !type.contiguous() || type.pair()) return std::nullopt;
  auto native = native_of(kind_, *type.element());
  if (native) native->elements *= static_cast<std::size_t>(type.elements());
  return native;
}

void Operator::apply_elements(const void* in, void* in_out, MPI_Count count,
                              Element element) const {
  const auto n = static_cast<std::size_t>(count);
  if (kind_ == Kind::no_op) return;
  if (kind_ == Kind::replace) {
    std::memcpy(in_out, in, n * properties(element).size);
    return;
  }
  if (const auto native = native_of(kind_, element)) {
    const std::array<Source, 2> sources{Source{in}, Source{in_out}};
    const std::array<void*, 1> destinations{in_out};
    combine(native->type, native->kind, destinations, sources, n * native->elements);
    return;
  }
  const DefaultFloatEnvironment environment;
  kernel_of(kind_, element)(in, in_out, n);
}

void Operator::apply(const void* in, void* in_out, MPI_Count count, const Type& type,
                     MPI_Datatype handle) const {
  if (count == 0 || kind_ == Kind::no_op) return;
  if (kind_ == Kind::function) {
    const auto* from = static_cast<const std::byte*>(in);
    auto* to = static_cast<std::byte*>(in_out);
    for (MPI_Count done = 0; done < count; done += largest_) {
      const MPI_Aint at = done * type.extent();
      function_(const_cast<std::byte*>(from) + at, to + at, std::min(largest_, count - done),
                handle);
    }
    return;
  }
  if (kind_ == Kind::replace) return Type::copy(in, count, type, in_out, count, type);
  if (is_location(kind_)) {
    combine_pairs(kind_ == Kind::max_location, *type.pair(),
                  static_cast<std::size_t>(type.extent()), in, in_out,
                  static_cast<std::size_t>(count));
    return;
  }
  if (type.contiguous()) {
    return apply_elements(type.address(in), type.address(in_out), count * type.elements(),
                          *type.element());
  }
  type.typed_layout().for_each_run(
      count, type.extent(), 0, count * type.size(),
      [&](Element element, MPI_Aint offset, MPI_Count bytes) {
        apply_elements(static_cast<const std::byte*>(in) + offset,
                       static_cast<std::byte*>(in_out) + offset,
                       bytes / static_cast<MPI_Count>(properties(element).size), element);
      });
}

Handles<Operator, MPI_Op>& operators() {
  using All = Handles<Operator, MPI_Op>;
  static All& handles = []() -> All& {
    auto* made = new All;
    for (const Row& row : kOperators)
      made->predefine(row.handle, std::make_shared<Operator>(row.kind));
    return *made;
  }();
  return handles;
}

std::shared_ptr<Operator> shared_operator(MPI_Op op) {
  auto object = operators().share(op);
  if (object == nullptr) fail(MPI_ERR_OP, "the operator is null, was freed, or is none");
  return object;
}

Operator& operator_of(MPI_Op op) {
  Operator* object = operators().find(op);
  if (object == nullptr) fail(MPI_ERR_OP, "the operator is null, was freed, or is none");
  return *object;
}

// --- The procedures

namespace {

template <class Count, class Function>
int create_call(const char* procedure, Function* function, int commute, MPI_Op* op) {
  return guarded(procedure, On(), [&] {
    if (function == nullptr || op == nullptr)
      fail(MPI_ERR_ARG, "the function, or the place, is a null pointer");
    *op = operators().add(std::make_shared<Operator>(
        [function](void* in, void* in_out, MPI_Count count, MPI_Datatype type) {
          auto n = static_cast<Count>(count);
          function(in, in_out, &n, &type);
        },
        commute != 0, std::numeric_limits<Count>::max()));
  });
}

int reduce_local_call(const char* procedure, const void* in, void* in_out, MPI_Count count,
                      MPI_Datatype handle, MPI_Op op) {
  return guarded(procedure, On(), [&] {
    if (count < 0) fail(MPI_ERR_COUNT, "the count is {}; it has to be 0 or more", count);
    const Type& type = committed_type(handle);
    const Operator& operation = operator_of(op);
    if (operation.kind() == Kind::replace || operation.kind() == Kind::no_op) {
      fail(MPI_ERR_OP, "{} is an operator of one-sided calls alone", name_of(operation.kind()));
    }
    operation.check(type);
    operation.apply(in, in_out, count, type, handle);
  });
}

}  // namespace

int MPI_Op_create(MPI_User_function* function, int commute, MPI_Op* op) {
  return create_call<int>("MPI_Op_create", function, commute, op);
}

int MPI_Op_create_c(MPI_User_function_c* function, int commute, MPI_Op* op) {
  return create_call<MPI_Count>("MPI_Op_create_c", function, commute, op);
}

int MPI_Op_free(MPI_Op* op) {
  return guarded("MPI_Op_free", On(), [&] {
    if (op == nullptr) fail(MPI_ERR_ARG, "the place of the operator's handle is a null pointer");
    const Operator& operation = operator_of(*op);
    if (operation.predefined())
      fail(MPI_ERR_OP, "{} is predefined and cannot be freed", name_of(operation.kind()));
    operators().remove(*op);
    *op = MPI_OP_NULL;
  });
}

int MPI_Op_commutative(MPI_Op op, int* commute) {
  return guarded("MPI_Op_commutative", On(),
                 [&] { *commute = operator_of(op).commutative() ? 1 : 0; });
}

int MPI_Reduce_local(const void* in, void* in_out, int count, MPI_Datatype type, MPI_Op op) {
  return reduce_local_call("MPI_Reduce_local", in, in_out, count, type, op);
}

int MPI_Reduce_local_c(const void* in, void* in_out, MPI_Count count, MPI_Datatype type,
                       MPI_Op op) {
  return reduce_local_call("MPI_Reduce_local_c", in, in_out, count, type, op);
}

}  // namespace tutti::mpi
