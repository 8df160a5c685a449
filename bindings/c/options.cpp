// tutti_options, and Options.
#include <cstddef>

#include "bindings/c/boundary.h"

namespace tutti::c {
namespace {

constexpr std::size_t kFirstOptions = offsetof(tutti_options, reserved) + sizeof(int);
static_assert(kFirstOptions == sizeof(tutti_options),
              "no padding at the end: older programs have it");

/// `options` becomes `known`, as far as its `size` bytes reach.
void write(const tutti_options& known, tutti_options* options, std::size_t size,
           const char* function) {
  need(options, function, "options");
  tutti_options measured{};
  measured.size = size;
  (void)c::known(&measured, kFirstOptions, function, "options");  // refuses a size that is none
  std::memcpy(options, &known, size);
  options->size = size;
}

tutti_options written(const Options& from) {
  tutti_options to{};
  to.timeout_ns = from.timeout.count();
  to.report_after_ns = from.report_after.count();
  to.rendezvous_timeout_ns = from.rendezvous_timeout.count();
  to.slots = from.slots;
  to.slot_bytes = from.slot_bytes;
  to.cuda_blocks = from.cuda_blocks;
  to.quorum = from.quorum;
  to.encrypt = from.encrypt;
  to.round_once = from.round_once;
  to.invariant = from.invariant;
  to.gpu = from.gpu;
  return to;
}

bool flag(int value, const char* function, const char* name) {
  if (value == 0 || value == 1) return value == 1;
  refuse(std::string(function) + ": options->" + name + " is " + std::to_string(value) +
         ", but must be 0 or 1");
}

}  // namespace

Options options_of(const tutti_options* options, const char* function) {
  Options to;
  if (options == nullptr) return to;
  const tutti_options from = known(options, kFirstOptions, function, "options");
  to.timeout = std::chrono::nanoseconds(from.timeout_ns);
  to.report_after = std::chrono::nanoseconds(from.report_after_ns);
  to.rendezvous_timeout = std::chrono::nanoseconds(from.rendezvous_timeout_ns);
  if (from.algorithm != nullptr) to.algorithm = from.algorithm;
  if (from.cuda_protocols != nullptr) to.cuda_protocols = from.cuda_protocols;
  if (from.host_id != nullptr) to.host_id = from.host_id;
  if (from.interfaces != nullptr) to.interfaces = from.interfaces;
  to.slots = from.slots;
  to.slot_bytes = from.slot_bytes;
  to.cuda_blocks = from.cuda_blocks;
  to.quorum = flag(from.quorum, function, "quorum");
  to.encrypt = flag(from.encrypt, function, "encrypt");
  to.round_once = flag(from.round_once, function, "round_once");
  to.invariant = flag(from.invariant, function, "invariant");
  to.gpu = from.gpu;
  if (from.reserved != 0) {
    refuse(std::string(function) + ": options->reserved is " + std::to_string(from.reserved) +
           ", but must be 0");
  }
  return to;
}

std::optional<Options> changed_options(const tutti_options* options, const char* function) {
  if (options == nullptr) return {};
  return options_of(options, function);
}

}  // namespace tutti::c

using namespace tutti;

tutti_result tutti_options_init(tutti_options* options, size_t size) {
  return c::guarded([&] { c::write(c::written(Options()), options, size, "tutti_options_init"); });
}

tutti_result tutti_comm_options(const tutti_comm* comm, tutti_options* options, size_t size) {
  return c::guarded([&] {
    const Options& from = c::communicator(comm, "tutti_comm_options").options();
    tutti_options to = c::written(from);
    to.algorithm = from.algorithm.c_str();
    to.cuda_protocols = from.cuda_protocols.c_str();
    to.host_id = from.host_id.c_str();
    to.interfaces = from.interfaces.c_str();
    c::write(to, options, size, "tutti_comm_options");
  });
}
