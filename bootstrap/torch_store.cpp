// See torch_store.h.
#include "bootstrap/torch_store.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "core/background.h"
#include "core/error.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// PyTorch's numbers.
enum class Query : std::uint8_t { set = 1, get = 3, wait = 6, remove = 8 };

constexpr std::uint64_t kLongestValue = 4096;
constexpr auto kToRemove = 5s;

std::string request(Query query) { return {static_cast<char>(query)}; }

std::string number_in_bytes(std::uint64_t number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

struct Closed : Error {
  Closed() : Error(ErrorCode::system, "it has closed the connection: is it PyTorch's TCPStore?") {}
};

class TorchStore final : public LauncherStore {
 public:
  TorchStore(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}

  std::string name() const override {
    return fmt::format("torchrun's store at {}:{} (MASTER_ADDR, MASTER_PORT)", host_, port_);
  }
  /// torchrun's agent lives on when it starts ranks anew.
  bool outlives_ranks() const override { return true; }

  void put(const std::string& key, const std::string& value, Deadline deadline) override {
    const FileDescriptor socket = begin(deadline);
    send(socket, request(Query::set).append(torch_text(key)).append(torch_text(value)), deadline);
    wait_for_key(socket, key, deadline);  // a set has no answer
  }

  std::string get(const std::string& key, Deadline deadline) override {
    FileDescriptor socket;
    bool turned_away = false;
    for (const auto begun = Clock::now(); !socket; pause_in_wait(begun)) {
      try {
        FileDescriptor attempt = begin(deadline);
        wait_for_key(attempt, key, deadline);
        socket = std::move(attempt);
      } catch (const Closed&) {  // a server that has only other keys yet (torch_server.cpp)
        turned_away = true;
        if (Clock::now() >= deadline) throw;
      } catch (const Error& error) {
        if (turned_away && error.code() == ErrorCode::timed_out) throw Closed();
        throw;
      }
    }
    send(socket, torch_get_request(key), deadline);
    std::uint64_t length = 0;
    receive(socket, std::as_writable_bytes(std::span(&length, 1)), key, deadline);
    if (length > kLongestValue)
      throw Error(ErrorCode::system, fmt::format("{} has {} bytes there", key, length));
    std::string value(length, '\0');
    receive(socket, std::as_writable_bytes(std::span(value)), key, deadline);
    return value;
  }

  void remove(const std::string& key) override {
    try {
      const Deadline deadline = deadline_after(kToRemove);
      const FileDescriptor socket = begin(deadline);
      send(socket, request(Query::remove).append(torch_text(key)), deadline);
      std::int64_t removed = 0;
      receive(socket, std::as_writable_bytes(std::span(&removed, 1)), key, deadline);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::aborted) throw;  // the store is gone, and the value with it
    }
  }

 private:
  FileDescriptor begin(Deadline deadline) const {
    FileDescriptor socket = connect_to_host(host_, port_, deadline);
    send(socket, kTorchGreeting, deadline);
    return socket;
  }

  static void wait_for_key(const FileDescriptor& socket, const std::string& key,
                           Deadline deadline) {
    send(socket, torch_wait_request(key), deadline);
    std::uint8_t answer = 0;
    receive(socket, std::as_writable_bytes(std::span(&answer, 1)), key, deadline);
    if (answer != 0) {
      throw Error(ErrorCode::system,
                  fmt::format("it answers as no TCPStore of PyTorch does (with the byte {}): does "
                              "another program, such as a web server, listen at MASTER_PORT? Then "
                              "take another port",
                              answer));
    }
  }

  static void send(const FileDescriptor& socket, std::string_view request, Deadline deadline) {
    const IoResult result = write_exactly(socket, std::as_bytes(std::span(request)), deadline);
    if (result != IoResult::done) throw_gone(result, "takes no requests");
  }
  static void receive(const FileDescriptor& socket, std::span<std::byte> bytes,
                      const std::string& key, Deadline deadline) {
    const IoResult result = read_exactly(socket, bytes, deadline);
    if (result != IoResult::done) throw_gone(result, fmt::format("has no {}", key));
  }
  [[noreturn]] static void throw_gone(IoResult result, const std::string& what) {
    if (result == IoResult::timed_out)
      throw Error(ErrorCode::timed_out, fmt::format("it {} in time", what));
    throw Closed();
  }

  const std::string host_;
  const std::uint16_t port_;
};

}  // namespace

std::string torch_text(const std::string& text) {
  return number_in_bytes(text.size()).append(text);
}
std::string torch_wait_request(const std::string& key) {
  return request(Query::wait).append(number_in_bytes(1)).append(torch_text(key));
}
std::string torch_get_request(const std::string& key) {
  return request(Query::get).append(torch_text(key));
}

constexpr std::string_view kTorchGreeting{"\0\xCE\xF7\x85\x3C", 5};

std::shared_ptr<LauncherStore> torch_store(const std::string& host, std::uint16_t port) {
  return std::make_shared<TorchStore>(host, port);
}

}  // namespace tutti
