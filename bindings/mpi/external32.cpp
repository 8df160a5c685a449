#include "bindings/mpi/external32.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "bindings/mpi/error.h"
#include "bindings/mpi/wide_numbers.h"

namespace tutti::mpi {
namespace {

static_assert(std::endian::native == std::endian::little);

void copy_reversed(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::reverse_copy(from, from + bytes, to);
}

/// One number, of `From` here and of `To` there.
template <class From, class To>
void convert(const std::byte* from, std::byte* to, bool outwards) {
  const auto narrow = [](auto number, auto wanted) {
    using Wanted = decltype(wanted);
    const auto result = static_cast<Wanted>(number);
    if constexpr (std::is_integral_v<Wanted>) {
      if (static_cast<decltype(number)>(result) != number) {
        fail(MPI_ERR_CONVERSION,
             "the number {} has no room in the {} bytes that external32 gives to its type", number,
             sizeof(Wanted));
      }
    }
    return result;
  };
  From here{};
  To there{};
  if (outwards) {
    std::memcpy(&here, from, sizeof here);
    there = narrow(here, To{});
    copy_reversed(to, reinterpret_cast<const std::byte*>(&there), sizeof there);
  } else {
    copy_reversed(reinterpret_cast<std::byte*>(&there), from, sizeof there);
    here = narrow(there, From{});
    std::memcpy(to, &here, sizeof here);
  }
}

// Some bytes of a long double mean nothing; the program's should not be read from there.
void clear_padding(std::byte* number) {
  if constexpr (std::numeric_limits<long double>::digits == 64)
    std::memset(number + 10, 0, sizeof(long double) - 10);
}

/// One part of an element: a number, of which a complex element has two.
void convert_number(Element element, const std::byte* from, std::byte* to, bool outwards,
                    std::size_t here) {
  switch (element) {
    case Element::c_long:
      return convert<std::int64_t, std::int32_t>(from, to, outwards);
    case Element::c_unsigned_long:
      return convert<std::uint64_t, std::uint32_t>(from, to, outwards);
    case Element::wide_character:
      return convert<std::uint32_t, std::uint16_t>(from, to, outwards);
    case Element::extended:
    case Element::complex_extended:
      convert<long double, Float128>(from, to, outwards);
      if (!outwards) clear_padding(to);
      return;
    default:
      return copy_reversed(to, from, here);
  }
}

void convert_run(Element element, const std::byte* from, std::byte* to, MPI_Count n,
                 bool outwards) {
  const ElementProperties& of = properties(element);
  const std::size_t numbers = of.kind == ElementClass::complex ? 2 : 1;
  const std::size_t here = of.size / numbers, there = of.external_size / numbers;
  const std::size_t from_step = outwards ? here : there, to_step = outwards ? there : here;
  if (here == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n));
    return;
  }
  for (MPI_Count i = 0; i < n * static_cast<MPI_Count>(numbers);
       ++i, from += from_step, to += to_step) {
    convert_number(element, from, to, outwards, here);
  }
}

/// Calls each(element, offset, elements) for the runs of `count` elements of the type.
template <class Each>
void for_each_run(const Type& type, MPI_Count count, Each&& each) {
  type.typed_layout().for_each_run(count, type.extent(), 0, count * type.size(),
                                   [&](Element element, MPI_Aint offset, MPI_Count bytes) {
                                     each(element, offset,
                                          bytes / static_cast<MPI_Count>(properties(element).size));
                                   });
}

}  // namespace

void to_external32(const void* buffer, MPI_Count count, const Type& type, std::byte* out) {
  for_each_run(type, count, [&](Element element, MPI_Aint offset, MPI_Count n) {
    convert_run(element, static_cast<const std::byte*>(buffer) + offset, out, n, true);
    out += n * static_cast<MPI_Count>(properties(element).external_size);
  });
}

void from_external32(const std::byte* in, MPI_Count count, const Type& type, void* buffer) {
  for_each_run(type, count, [&](Element element, MPI_Aint offset, MPI_Count n) {
    convert_run(element, in, static_cast<std::byte*>(buffer) + offset, n, false);
    in += n * static_cast<MPI_Count>(properties(element).external_size);
  });
}

}  // namespace tutti::mpi
