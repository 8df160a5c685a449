// The memory of a Python object: anything with the buffer protocol (numpy, array, bytearray),
// DLPack (torch, jax, cupy), __array_interface__ (numpy arrays of ml_dtypes' types) or
// __cuda_array_interface__. Copies nothing, and refuses memory with gaps.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace tutti::python {

namespace nb = nanobind;

/// The kind of the elements. Tutti has no 16-bit integers, complex numbers or booleans, but moves
/// them, and reduces the latter two as far as that makes sense.
struct ElementType {
  enum class Kind : std::uint8_t { number, boolean, complex, opaque };
  Kind kind = Kind::opaque;
  DataType type = DataType::uint8;  // of a number, or of the two parts of a complex one
  std::size_t bytes = 1;            // of an element
  bool is_swapped = false;          // opaque, as its bytes are in the other order (big-endian)
  bool operator==(const ElementType&) const = default;
};

class Buffer {
 public:
  enum class Access : std::uint8_t { read, write };

  /// Throws a TypeError for an object without memory or one of Python objects, a BufferError for
  /// memory that is read-only (where it is to be written) or has gaps. `argument` names it in
  /// messages.
  Buffer(nb::handle object, Access access, const char* argument);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();  // with the GIL

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return count_ * element_.bytes; }
  /// In elements.
  std::size_t count() const { return count_; }
  const ElementType& element() const { return element_; }
  std::span<const std::int64_t> shape() const { return shape_; }
  bool on_gpu() const { return on_gpu_; }
  std::string shape_text() const;

 private:
  Buffer() = default;
  bool take_buffer(nb::handle object, Access access, const char* argument);
  bool take_array_interface(nb::handle object, Access access, const char* argument);
  void read_array_interface(nb::handle object, const nb::dict& said, Access access,
                            const char* argument);
  bool take_dlpack(nb::handle object, Access access, const char* argument);
  void check_opaque(nb::handle object, const char* argument) const;

  std::byte* data_ = nullptr;
  std::size_t count_ = 0;
  ElementType element_;
  std::vector<std::int64_t> own_shape_;
  std::span<const std::int64_t> shape_;
  bool on_gpu_ = false;
  Py_buffer view_{};
  bool has_view_ = false;
  nb::object owner_;
};

}  // namespace tutti::python
