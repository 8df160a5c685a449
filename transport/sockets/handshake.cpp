// See handshake.h. The primitives are libsodium's.
#include "transport/sockets/handshake.h"

#include <fmt/format.h>
#include <sodium.h>

#include "core/error.h"

namespace tutti::protocol {
namespace {

void need_sodium() {
  static const int result = sodium_init();  // thread-safe, and 1 when it was done before
  if (result < 0) throw Error(ErrorCode::system, "libsodium cannot be initialised");
}

const unsigned char* data(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

void fill_random(std::span<std::byte> bytes) {
  need_sodium();
  randombytes_buf(bytes.data(), bytes.size());
}

Bytes32 hash(std::span<const std::byte> key, std::string_view purpose,
             std::initializer_list<std::span<const std::byte>> parts) {
  need_sodium();
  crypto_generichash_state state;
  Bytes32 result;
  crypto_generichash_init(&state, key.empty() ? nullptr : data(key), key.size(), result.size());
  // The length in front keeps a purpose from running into what follows it.
  const std::string label = fmt::format("tutti {} {}:{}", kVersion, purpose.size(), purpose);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(label.data()),
                            label.size());
  for (const auto part : parts) crypto_generichash_update(&state, data(part), part.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(result.data()), result.size());
  return result;
}

bool equal(const Bytes32& a, const Bytes32& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Session::Session(const Bytes32& secret, const Bytes32& acceptor_nonce,
                 const Bytes32& connector_nonce)
    : key_(hash(secret, "connection", {acceptor_nonce, connector_nonce})) {}

}  // namespace tutti::protocol
