#include "bindings/mpi/signature.h"

namespace tutti::mpi {
namespace {

constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
constexpr std::uint64_t kBase = 0x10F2A6D3C5B7E981 % kPrime;

__extension__ using Wide = unsigned __int128;

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  const auto folded =
      static_cast<std::uint64_t>(product & kPrime) + static_cast<std::uint64_t>(product >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}

}  // namespace

Signature Signature::of(Element element) {
  // The same numbers under two names.
  if (element == Element::c_long) element = Element::int64;
  if (element == Element::c_unsigned_long) element = Element::uint64;
  Signature signature;
  signature.length_ = 1;
  signature.power_ = kBase;
  signature.sum_ = static_cast<std::uint64_t>(element) + 1;
  signature.open_ = element == Element::byte || element == Element::packed;
  return signature;
}

Signature Signature::then(const Signature& next) const {
  Signature both;
  both.length_ = length_ + next.length_;
  both.power_ = multiply(power_, next.power_);
  both.sum_ = add(multiply(sum_, next.power_), next.sum_);
  both.open_ = open_ || next.open_;
  return both;
}

Signature Signature::times(std::uint64_t n) const {
  Signature result;
  Signature doubled = *this;  // 1, 2, 4, ... times
  for (; n != 0; n >>= 1) {
    if ((n & 1) != 0) result = result.then(doubled);
    doubled = doubled.then(doubled);
  }
  return result;
}

}  // namespace tutti::mpi
