// Operators of reductions (MPI_Op): the predefined ones on all predefined types, and the program's
// functions.
//
// Which numbers come out is what docs/semantics.md promises for Tutti's own: integers wrap, a NaN
// wins in min and max, and -0 is below +0. MINLOC and MAXLOC take the least index among equal
// values, and a NaN before any number.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "bindings/mpi/handle.h"
#include "bindings/mpi/type.h"
#include "core/types.h"

namespace tutti::mpi {

class Operator {
 public:
  enum class Kind : std::uint8_t {
    sum,
    prod,
    min,
    max,
    logical_and,
    logical_or,
    logical_xor,
    bit_and,
    bit_or,
    bit_xor,
    min_location,
    max_location,
    replace,  // of one-sided calls alone
    no_op,
    function,
  };
  /// Of the program: in_out[i] = in[i] op in_out[i] for `count` elements of the type.
  using Function = std::function<void(void* in, void* in_out, MPI_Count count, MPI_Datatype type)>;

  explicit Operator(Kind kind) : kind_(kind) {}
  /// `largest`: the most elements of one call (INT_MAX for functions whose count is an int).
  Operator(Function function, bool commutative, MPI_Count largest)
      : kind_(Kind::function),
        commutative_(commutative),
        largest_(largest),
        function_(std::move(function)) {}

  Kind kind() const { return kind_; }
  bool commutative() const { return commutative_; }
  bool predefined() const { return kind_ != Kind::function; }

  /// Throws Failure(MPI_ERR_OP) if the operator is not defined on the type: a predefined one takes
  /// predefined types alone, and derived ones whose elements are all of one such type in one-sided
  /// calls (`derived`).
  void check(const Type& type, bool derived = false) const;

  /// Whether apply_elements() takes such elements.
  bool takes(Element element) const;

  /// As what Tutti's own collectives reduce it: `count` elements of the type are count * elements
  /// of `type`, combined by `kind`. Only of contiguous types. nullopt: reduce with apply().
  struct Native {
    DataType type;
    ReduceKind kind;
    std::size_t elements;
  };
  std::optional<Native> native(const Type& type) const;

  /// in_out[i] = in[i] op in_out[i] for `count` elements, `in` being of the lower ranks. Both have
  /// the layout of the type (they begin where a send buffer would). `handle` is what a function of
  /// the program is told.
  void apply(const void* in, void* in_out, MPI_Count count, const Type& type,
             MPI_Datatype handle) const;

  /// The same for `count` contiguous elements of one kind: what one-sided calls apply run by run.
  void apply_elements(const void* in, void* in_out, MPI_Count count, Element element) const;

 private:
  Kind kind_;
  bool commutative_ = true;
  MPI_Count largest_ = 0;
  Function function_;
};

/// The pair of a value and an index (MPI_DOUBLE_INT, ...) that all data of the type are; null: they
/// are others.
const Type* pairs_of(const Type& type);

/// All operators; the predefined ones are there from the start.
Handles<Operator, MPI_Op>& operators();
/// The operator of a handle. Throws Failure(MPI_ERR_OP) for the null handle and a freed one.
std::shared_ptr<Operator> shared_operator(MPI_Op op);
Operator& operator_of(MPI_Op op);

}  // namespace tutti::mpi
