// A wire over UCX: how it comes to an endpoint, and how it ends.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "core/log.h"
#include "transport/ucx/ucx_wire.h"

namespace tutti {
namespace {

constexpr std::uint32_t kLongBytes = 16384;

// UCX's transports under an endpoint ("tcp"; "sysv, cma"), of which there is only a text for
// people:
//     lane[0]:  2:sysv/memory.0 md[2] -> ...
// Empty: the text is another one.
std::string carriers_of(const UcxLibrary& ucx, ucp_ep_h ep) {
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucx.ep_print_info(ep, stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  std::string all;
  std::istringstream lines(std::string(text, bytes));
  for (std::string line; std::getline(lines, line);) {
    // "lane[0]: 2:sysv/memory.0": behind the second colon, up to the slash.
    const auto lane = line.find("lane["), first = line.find(':', lane);
    const auto second = line.find(':', first + 1), slash = line.find('/', second);
    if (lane == std::string::npos || first == std::string::npos || second == std::string::npos ||
        slash == std::string::npos) {
      continue;
    }
    const std::string name = line.substr(second + 1, slash - second - 1);
    if (fmt::format(", {},", all).find(fmt::format(" {},", name)) != std::string::npos) continue;
    all += all.empty() ? name : ", " + name;
  }
  return all;
}

}  // namespace

std::vector<std::byte> UcxWire::hello() {
  const Hello hello{key_};
  const std::vector<std::byte>& address = worker_->address();
  std::vector<std::byte> bytes(sizeof hello + address.size());
  std::memcpy(bytes.data(), &hello, sizeof hello);
  std::memcpy(bytes.data() + sizeof hello, address.data(), address.size());
  return bytes;
}

void UcxWire::greet(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  Hello hello;
  if (closed_) return;
  if (ep_ != nullptr || bytes.size() <= sizeof hello)
    return close_with("it has sent what cannot be");
  std::memcpy(&hello, bytes.data(), sizeof hello);
  peer_key_ = hello.key;
  connect(bytes.subspan(sizeof hello));
  if (closed_) return;
  if (peer_bye_) ended();
  if (!closed_) push();
}

void UcxWire::connect(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // Whether the peer lives, the control stream knows. Were UCX to promise it, it could not use
  // shared memory, nor put into the peer's memory over TCP, which is twice as fast as what it does
  // then (1.13; openucx/ucx#11929). What it hears by itself, it says.
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler = {&UcxWire::on_error, worker_.get()};
  const ucs_status_t status = ucx_.ep_create(worker_->handle(), &params, &ep_);
  if (status == UCS_OK) {
    carriers_ = carriers_of(ucx_, ep_);
    long_bytes_ = carriers_ == "tcp" ? kLongBytesOverTcp : kLongBytes;
    log().debug("UCX: messages go over {}", carriers_.empty() ? "?" : carriers_);
    return;
  }
  ep_ = nullptr;
  close_with(
      fmt::format("UCX does not reach it: {}; TUTTI_UCX_TLS and TUTTI_UCX_NET_DEVICES say "
                  "what it may use",
                  ucx_.text(status)));
}

std::string UcxWire::carrier() const {
  const std::lock_guard lock(mutex_);
  return carriers_.empty() ? "ucx" : fmt::format("ucx ({})", carriers_);
}

void UcxWire::close_with(const std::string& why) {
  if (closed_) return;
  closed_ = true;
  owner_.on_closed(why);
}

void UcxWire::on_error(void* user, ucp_ep_h ep, ucs_status_t status) {
  auto& worker = *static_cast<UcxWorker*>(user);
  worker.for_all([&](UcxWire& wire) {
    if (wire.ep_ != ep) return;
    wire.failed_ = true;
    const bool over = wire.said_bye_ || wire.peer_bye_;
    wire.close_with(over ? "" : fmt::format("UCX: {}", wire.ucx_.text(status)));
  });
}

void UcxWire::shut() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (ep_ == nullptr) return;
  const ucp_ep_h ep = std::exchange(ep_, nullptr);
  // A peer that is gone, or may be, would be waited for: that endpoint goes with the worker.
  if (failed_ || !peer_bye_) return;
  const ucp_request_param_t params{};
  worker_->keep_closing(ucx_.ep_close_nbx(ep, &params));
}

void UcxWire::say_bye() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (ep_ == nullptr) {
    closed_ = true;
    return;
  }
  push();
  said_bye_ = true;
  said_.push_back({{Frame::bye, 0, 0, 0, 0, 0}, {}});
  push();
}

bool UcxWire::is_delivered() {
  const std::lock_guard lock(mutex_);
  if (!closed_) worker_->progress();
  return closed_ || acknowledged_;
}

}  // namespace tutti
