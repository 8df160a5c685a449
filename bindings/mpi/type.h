// Data types (MPI_Datatype): the predefined ones, and those that a program makes of them.
//
// A type is a sequence of elements with displacements (the type map). It is immutable once made,
// but for its name, its attributes, and whether it is committed; so any thread may use it.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/mpi/attributes.h"
#include "bindings/mpi/handle.h"
#include "bindings/mpi/layout.h"
#include "bindings/mpi/signature.h"

namespace tutti::mpi {

class Type;
using TypeRef = std::shared_ptr<Type>;

/// How a type was made: what MPI_Type_get_envelope and MPI_Type_get_contents answer.
struct Contents {
  Contents() = default;
  explicit Contents(int how, std::vector<int> numbers = {})
      : combiner(how), integers(std::move(numbers)) {}

  int combiner = MPI_COMBINER_NAMED;
  bool large = false;  // made by a procedure whose name ends with _c
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Count> counts;
  std::vector<TypeRef> types;
};

/// From the first byte of a type to the one after its last.
struct Bounds {
  MPI_Aint lower = 0;
  MPI_Aint upper = 0;
};

class Type {
 public:
  // --- What programs ask

  /// Bytes of data in one element of the type.
  MPI_Count size() const { return layout_->bytes(); }
  MPI_Aint lower_bound() const { return bounds_.lower; }
  /// From one element of the type to the next, in bytes.
  MPI_Aint extent() const { return bounds_.upper - bounds_.lower; }
  MPI_Aint true_lower_bound() const { return true_bounds_.lower; }
  MPI_Aint true_extent() const { return true_bounds_.upper - true_bounds_.lower; }
  bool predefined() const { return contents_.combiner == MPI_COMBINER_NAMED; }
  const Contents& contents() const { return contents_; }

  // --- What decides how data are moved; each of these takes constant time

  /// Whether `count` elements are count * size() bytes that follow each other, from address(buffer)
  /// on: then nothing needs to be packed.
  bool contiguous(MPI_Count count) const {
    return contiguous_ || (count == 1 && layout_->single_run());
  }
  /// The same for every count.
  bool contiguous() const { return contiguous_; }
  /// Where the data of the first element begin: of a contiguous type, all data.
  std::byte* address(void* buffer) const {
    return static_cast<std::byte*>(buffer) + true_bounds_.lower;
  }
  const std::byte* address(const void* buffer) const {
    return static_cast<const std::byte*>(buffer) + true_bounds_.lower;
  }
  /// The element that all data of the type are, if they are of one kind (of any layout).
  std::optional<Element> element() const { return element_; }
  /// Bytes of one element of the type in the representation external32.
  MPI_Count external_size() const { return external_size_; }
  /// How many elements there are in one element of the type.
  MPI_Count elements() const { return static_cast<MPI_Count>(signature_.length()); }
  /// What a sender's and a receiver's type have in common if the call is right.
  const Signature& signature() const { return signature_; }
  /// Of MPI_FLOAT_INT and its like: the types of the value and of its index.
  struct Pair {
    Element value;
    Element index;
    std::size_t index_offset;
  };
  const std::optional<Pair>& pair() const { return pair_; }

  // --- Moving data. `count` elements of the type at `buffer` are count * size() packed bytes; a
  // call moves the packed
  //     bytes [position, position + bytes), so that long messages can go in pieces.

  void pack(const void* buffer, MPI_Count count, MPI_Count position, MPI_Count bytes,
            void* out) const;
  void unpack(const void* in, MPI_Count position, MPI_Count bytes, void* buffer,
              MPI_Count count) const;
  /// All of it.
  void pack(const void* buffer, MPI_Count count, void* out) const {
    pack(buffer, count, 0, count * size(), out);
  }
  void unpack(const void* in, void* buffer, MPI_Count count) const {
    unpack(in, 0, count * size(), buffer, count);
  }
  /// Copies elements of one type to as many data of another one (as a send to oneself does).
  /// `bytes` of data at most.
  static void copy(const void* from, MPI_Count from_count, const Type& from_type, void* to,
                   MPI_Count to_count, const Type& to_type);

  /// The layout with runs of unlike elements apart; made when it is first asked for.
  const Layout& typed_layout() const;
  const Layout& layout() const { return *layout_; }

  /// Whole elements of predefined types in `bytes` received data (MPI_Get_elements); nullopt if
  /// they end inside of one.
  std::optional<MPI_Count> elements_in(MPI_Count bytes) const;
  /// The bytes of the first n elements of a message (the inverse).
  MPI_Count bytes_of_elements(MPI_Count n) const;

  // --- What changes

  bool committed() const { return committed_.load(std::memory_order_acquire); }
  void commit() { committed_.store(true, std::memory_order_release); }
  std::string name() const;
  void set_name(std::string name);
  Attributes& attributes() { return attributes_; }

  // --- How they are made (make_types.cpp). All throw Failure for sizes beyond 2^63 - 1. `old`
  // types are kept alive.

  struct Block {
    MPI_Count count;        // elements of the type
    MPI_Aint displacement;  // in bytes
    TypeRef type;
  };
  /// Blocks of types. All other constructors are made of this one and of repeat().
  static TypeRef of_blocks(std::vector<Block> blocks, Contents contents);
  /// `count` blocks of `length` elements each, whose beginnings are `stride` bytes apart.
  static TypeRef repeat(MPI_Count count, MPI_Count length, MPI_Aint stride, const TypeRef& old,
                        Contents contents);
  static TypeRef resized(const TypeRef& old, Bounds bounds, Contents contents);
  static TypeRef duplicate(const TypeRef& old);
  static TypeRef predefined(std::string name, Element element);
  static TypeRef predefined_pair(std::string name, Element value, Element index);

  Type() = default;
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;

 private:
  // The copies of one type in a type: `count` blocks of `length` elements, from `displacement` on.
  struct Copies {
    TypeRef type;
    MPI_Aint displacement;
    MPI_Count count, length;
    MPI_Aint stride;
  };
  void include(const Copies& copies);
  void finish();
  std::shared_ptr<const Layout> make_layout(bool typed) const;

  Contents contents_;
  std::vector<Copies> copies_;  // empty: predefined
  std::shared_ptr<const Layout> layout_;
  Bounds bounds_, true_bounds_;
  bool empty_ = true;    // no elements, and no bounds that were given
  bool marked_ = false;  // bounds_ were given, here or in a part
  bool contiguous_ = false;
  std::size_t alignment_ = 1;
  std::optional<Element> element_;
  std::optional<Pair> pair_;
  Signature signature_;
  MPI_Count external_size_ = 0;
  mutable std::once_flag typed_once_;
  mutable std::shared_ptr<const Layout> typed_layout_;  // of predefined types: from the start

  std::atomic<bool> committed_ = false;
  mutable std::mutex name_mutex_;
  std::string name_;
  Attributes attributes_;
};

/// All data types; predefined ones are there from the start.
Handles<Type, MPI_Datatype>& types();

/// The handle of a predefined type.
MPI_Datatype predefined_handle(const Type& type);

/// The predefined type of pairs of these elements.
MPI_Datatype handle_of_pairs(const Type::Pair& pair);

/// The type of a handle. Throws Failure(MPI_ERR_TYPE) for the null handle and a freed one;
/// committed_type() also for one that was never committed, as communication needs it.
TypeRef shared_type(MPI_Datatype type);
Type& type_of(MPI_Datatype type);
Type& committed_type(MPI_Datatype type);

}  // namespace tutti::mpi
