// A buffer of a call: where it is, how many elements, and of which type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "bindings/mpi/error.h"
#include "bindings/mpi/interface.h"
#include "bindings/mpi/type.h"

namespace tutti::mpi {

/// An object that a call uses. Of a call that goes on after its return it shares the ownership, as
/// the program may free its handle meanwhile.
template <class T>
class Held {
 public:
  Held() = default;
  explicit Held(T& object) : object_(&object) {}
  explicit Held(std::shared_ptr<T> object) : object_(object.get()), owner_(std::move(object)) {}
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
  std::shared_ptr<T> owner_;
};

struct Buffer {
  void* base = nullptr;
  MPI_Count count = 0;
  Held<Type> type;

  std::size_t bytes() const {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(type->size());
  }
  /// Whether the bytes of data follow each other.
  bool is_packed() const { return type->contiguous() || count == 0 || type->size() == 0; }
  /// Of a packed one: where they begin.
  std::byte* data() const { return type->address(base); }
  void pack(std::byte* to) const { type->pack(base, count, to); }
  /// The first `bytes` of the data.
  void unpack(const std::byte* from, std::size_t bytes) const {
    type->unpack(from, 0, static_cast<MPI_Count>(bytes), base, count);
  }
};

/// Throws Failure for a negative count.
inline void check_count(MPI_Count count) {
  if (count < 0) fail(MPI_ERR_COUNT, "the count is {}, but has to be 0 or more", count);
}

}  // namespace tutti::mpi
