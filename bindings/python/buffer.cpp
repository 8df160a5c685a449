#include "bindings/python/buffer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/ndarray.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace tutti::python {
namespace {

using Kind = ElementType::Kind;

ElementType number(DataType type) { return {Kind::number, type, size_of(type)}; }
ElementType opaque(std::size_t bytes) { return {Kind::opaque, DataType::uint8, bytes}; }
ElementType swapped(std::size_t bytes) { return {Kind::opaque, DataType::uint8, bytes, bytes > 1}; }

/// Of numbers of so many bytes.
ElementType integer(bool is_signed, std::size_t bytes) {
  switch (bytes) {
    case 1:
      return number(is_signed ? DataType::int8 : DataType::uint8);
    case 4:
      return number(is_signed ? DataType::int32 : DataType::uint32);
    case 8:
      return number(is_signed ? DataType::int64 : DataType::uint64);
    default:
      return opaque(bytes);
  }
}

ElementType floating(std::size_t bytes) {
  switch (bytes) {
    case 2:
      return number(DataType::float16);
    case 4:
      return number(DataType::float32);
    case 8:
      return number(DataType::float64);
    default:
      return opaque(bytes);
  }
}

ElementType complex(std::size_t bytes) {
  if (bytes != 8 && bytes != 16) return opaque(bytes);
  return {Kind::complex, bytes == 8 ? DataType::float32 : DataType::float64, bytes};
}

ElementType boolean() { return {Kind::boolean, DataType::uint8, 1}; }

/// As the struct module writes a type.
ElementType from_format(const char* format, std::size_t bytes) {
  if (format == nullptr) return integer(false, bytes);
  std::string_view text = format;
  if (text.starts_with('>') || text.starts_with('!')) return swapped(bytes);
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.remove_prefix(1);
  if (text.size() == 2 && text[0] == 'Z') return complex(bytes);
  if (text.size() != 1) return opaque(bytes);
  switch (text[0]) {
    case '?':
      return boolean();
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return integer(true, bytes);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return integer(false, bytes);
    case 'e':
    case 'f':
    case 'd':
      return floating(bytes);
    default:
      return opaque(bytes);
  }
}

/// As __array_interface__ writes a type: "<f4", "<M8[ns]". Types of ml_dtypes are "<V2" there, or
/// "<f1", and have their names.
ElementType from_typestr(std::string_view typestr, std::string_view name) {
  if (name == "bfloat16") return number(DataType::bfloat16);
  if (name == "float8_e4m3fn") return number(DataType::float8_e4m3);
  if (name == "float8_e5m2") return number(DataType::float8_e5m2);
  std::size_t bytes = 0;
  const char* const end = typestr.data() + typestr.size();
  const char* const digits = std::min(typestr.data() + 2, end);
  const auto [after, wrong] = std::from_chars(digits, end, bytes);
  if (wrong != std::errc{} || (after != end && *after != '[')) return opaque(0);
  if (typestr[0] == '>') return swapped(bytes);
  switch (typestr[1]) {
    case 'b':
      return boolean();
    case 'i':
      return integer(true, bytes);
    case 'u':
      return integer(false, bytes);
    case 'f':
      return floating(bytes);
    case 'c':
      return complex(bytes);
    default:
      break;
  }
  return opaque(bytes);
}

ElementType from_dlpack(const nb::dlpack::dtype& type) {
  // The numbers of DLDataTypeCode (DLPack 1.1).
  enum : std::uint8_t {
    kInt,
    kUInt,
    kFloat,
    kBfloat = 4,
    kComplex,
    kBool,
    kE4m3fn = 10,
    kE5m2 = 12
  };
  const std::size_t bits = std::size_t{type.bits} * type.lanes;
  if (bits % 8 != 0) return opaque(0);
  const std::size_t bytes = bits / 8;
  if (type.lanes != 1) return opaque(bytes);
  switch (type.code) {
    case kInt:
      return integer(true, bytes);
    case kUInt:
      return integer(false, bytes);
    case kFloat:
      return floating(bytes);
    case kBfloat:
      return bytes == 2 ? number(DataType::bfloat16) : opaque(bytes);
    case kComplex:
      return complex(bytes);
    case kBool:
      return boolean();
    case kE4m3fn:
      return number(DataType::float8_e4m3);
    case kE5m2:
      return number(DataType::float8_e5m2);
    default:
      return opaque(bytes);
  }
}

[[noreturn]] void refuse(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  throw nb::python_error();
}

[[noreturn]] void refuse_type(const std::string& why) {
  PyErr_SetString(PyExc_TypeError, why.c_str());
  throw nb::python_error();
}

/// Whether a type in the struct module's letters has Python objects. ":" encloses names of fields.
bool has_objects(const char* format) {
  bool in_name = false;
  for (; format != nullptr && *format != 0; ++format) {
    if (*format == ':') in_name = !in_name;
    if (*format == 'O' && !in_name) return true;
  }
  return false;
}

[[noreturn]] void refuse_gaps(const char* argument) {
  refuse(
      fmt::format("{} is not contiguous (rows one after the other, without gaps): pass a copy, "
                  "such as numpy.ascontiguousarray({})",
                  argument, argument));
}

[[noreturn]] void refuse_read_only(const char* argument) {
  refuse(fmt::format("{} is read-only, but would be written to", argument));
}

/// `element`: the size of one, as strides count.
bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                   std::size_t element) {
  auto expected = static_cast<std::int64_t>(element);
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

/// The elements of an array of `shape`, `element` bytes each.
std::size_t count_of(std::span<const std::int64_t> shape, std::size_t element,
                     const char* argument) {
  std::int64_t count = 1, bytes = 0;
  for (const std::int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(count, n, &count)) {
      refuse(fmt::format("{} has no possible shape: ({})", argument, fmt::join(shape, ", ")));
    }
  }
  if (__builtin_mul_overflow(count, static_cast<std::int64_t>(element), &bytes)) {
    refuse(fmt::format("{} has more bytes than there are: shape ({})", argument,
                       fmt::join(shape, ", ")));
  }
  return static_cast<std::size_t>(count);
}

}  // namespace

static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));

// (Once another constructor is through, an exception calls the destructor.)
Buffer::Buffer(nb::handle object, Access access, const char* argument) : Buffer() {
  if (take_buffer(object, access, argument) || take_array_interface(object, access, argument) ||
      take_dlpack(object, access, argument)) {
    if (element_.kind == Kind::opaque) check_opaque(object, argument);
    return;
  }
  PyErr_Format(PyExc_TypeError,
               "%s is a %s, which has no memory that Tutti could use: pass a numpy array, a torch "
               "tensor, or anything with the buffer protocol, DLPack, __array_interface__ or "
               "__cuda_array_interface__",
               argument, nb::str(nb::getattr(object.type(), "__name__")).c_str());
  throw nb::python_error();
}

void Buffer::check_opaque(nb::handle object, const char* argument) const {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const nb::object objects = nb::getattr(dtype, "hasobject", nb::none());
  if (objects.is(Py_True) || (has_view_ && has_objects(view_.format))) {
    refuse_type(
        fmt::format("{} has elements that are Python objects, of which its memory has only "
                    "the addresses: send them as bytes (pickle.dumps)",
                    argument));
  }
  if (element_.bytes == 0) {
    refuse_type(fmt::format("{} has elements of a type without a size in bytes", argument));
  }
}

Buffer::~Buffer() {
  if (has_view_) PyBuffer_Release(&view_);
}

bool Buffer::take_buffer(nb::handle object, Access access, const char* argument) {
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    // numpy cannot say ml_dtypes' types here; memory with gaps is found out below.
    PyErr_Clear();
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDED_RO) != 0) {
      PyErr_Clear();
      return false;
    }
    const bool gaps = PyBuffer_IsContiguous(&view_, 'C') == 0;
    PyBuffer_Release(&view_);
    if (gaps) refuse_gaps(argument);
    return false;
  }
  has_view_ = true;
  if (access == Access::write && view_.readonly != 0) refuse_read_only(argument);
  data_ = static_cast<std::byte*>(view_.buf);
  element_ = from_format(view_.format, static_cast<std::size_t>(view_.itemsize));
  count_ = view_.itemsize == 0 ? 0 : static_cast<std::size_t>(view_.len / view_.itemsize);
  shape_ = {reinterpret_cast<const std::int64_t*>(view_.shape),
            static_cast<std::size_t>(view_.ndim)};
  return true;
}

bool Buffer::take_array_interface(nb::handle object, Access access, const char* argument) {
  nb::object interface = nb::getattr(object, "__array_interface__", nb::none());
  if (interface.is_none()) {
    interface = nb::getattr(object, "__cuda_array_interface__", nb::none());
    on_gpu_ = !interface.is_none();
  }
  if (!nb::isinstance<nb::dict>(interface)) return false;
  try {
    read_array_interface(object, nb::cast<nb::dict>(interface), access, argument);
  } catch (const std::bad_cast&) {
    refuse(fmt::format("the __array_interface__ of {} is not as numpy defines it", argument));
  }
  return true;
}

void Buffer::read_array_interface(nb::handle object, const nb::dict& said, Access access,
                                  const char* argument) {
  for (const char* key : {"data", "typestr", "shape"}) {
    if (!said.contains(key)) {
      refuse(fmt::format("the __array_interface__ of {} has no {}", argument, key));
    }
  }
  const auto data = nb::cast<nb::tuple>(said["data"]);
  if (access == Access::write && nb::cast<bool>(data[1])) refuse_read_only(argument);
  const auto typestr = nb::cast<nb::str>(said["typestr"]);
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::str(""));
  element_ = from_typestr(typestr.c_str(), nb::cast<nb::str>(name).c_str());
  for (const nb::handle n : nb::cast<nb::tuple>(said["shape"])) {
    own_shape_.push_back(nb::cast<std::int64_t>(n));
  }
  shape_ = own_shape_;
  if (said.contains("strides") && !said["strides"].is_none()) {
    std::vector<std::int64_t> strides;
    for (const nb::handle n : nb::cast<nb::tuple>(said["strides"])) {
      strides.push_back(nb::cast<std::int64_t>(n));
    }
    if (!is_contiguous(shape_, strides, element_.bytes)) refuse_gaps(argument);
  }
  data_ = reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(data[0]));
  count_ = count_of(shape_, element_.bytes, argument);
  owner_ = nb::borrow(object);
}

bool Buffer::take_dlpack(nb::handle object, Access access, const char* argument) {
  if (!nb::hasattr(object, "__dlpack__")) return false;
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast<nb::ndarray<nb::ro>>(object, array, false)) return false;
  const int device = array.device_type();
  if (device != nb::device::cpu::value && device != nb::device::cuda::value &&
      device != nb::device::cuda_host::value && device != nb::device::cuda_managed::value) {
    refuse(fmt::format("{} is on a device that Tutti does not know (DLPack's number {})", argument,
                       device));
  }
  on_gpu_ = device == nb::device::cuda::value || device == nb::device::cuda_managed::value;
  std::vector<std::int64_t> strides;
  for (std::size_t d = 0; d < array.ndim(); ++d) {
    own_shape_.push_back(static_cast<std::int64_t>(array.shape(d)));
    strides.push_back(array.stride(d));
  }
  shape_ = own_shape_;
  if (!is_contiguous(shape_, strides, 1)) refuse_gaps(argument);
  const nb::object writeable =
      nb::getattr(nb::getattr(object, "flags", nb::none()), "writeable", nb::none());
  if (access == Access::write && writeable.is(Py_False)) refuse_read_only(argument);
  element_ = from_dlpack(array.dtype());
  data_ = static_cast<std::byte*>(const_cast<void*>(array.data()));
  count_ = count_of(shape_, element_.bytes, argument);
  owner_ = nb::borrow(object);
  return true;
}

std::string Buffer::shape_text() const {
  return fmt::format("({}{})", fmt::join(shape_, ", "), shape_.size() == 1 ? "," : "");
}

}  // namespace tutti::python
