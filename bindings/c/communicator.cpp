// How communicators are made, what they are, and how they end.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/boundary.h"
#include "bootstrap/unique_id.h"

namespace tutti::c {
namespace {

static_assert(sizeof(tutti_unique_id) == sizeof(UniqueId));

UniqueId id_of(const tutti_unique_id* id, const char* function) {
  UniqueId result;
  std::memcpy(result.bytes.data(), need(id, function, "id").bytes, sizeof result.bytes);
  return result;
}

void write_id(const UniqueId& from, tutti_unique_id* id) {
  std::memcpy(id->bytes, from.bytes.data(), sizeof id->bytes);
}

template <class Make>
tutti_result make_comm(tutti_comm** comm, const char* function, Make&& make) noexcept {
  return make_handle(comm, function, "comm", std::forward<Make>(make));
}

/// One that is made of another; `name` is what the header calls the new one.
template <class Make>
tutti_result make_of(tutti_comm* comm, const tutti_options* options, tutti_comm** made,
                     const char* function, const char* name, Make&& make) noexcept {
  return make_handle(made, function, name, [&] {
    return make(communicator(comm, function), changed_options(options, function));
  });
}

}  // namespace
}  // namespace tutti::c

using namespace tutti;

tutti_result tutti_unique_id_make(const char* address, tutti_unique_id* id) {
  return c::guarded([&] {
    c::need(id, "tutti_unique_id_make", "id");
    MeetingPlace place;
    if (address != nullptr) place.address = address;
    c::write_id(make_unique_id(place), id);
  });
}

tutti_result tutti_unique_id_make_among_hosts(tutti_unique_id* id) {
  return c::guarded([&] {
    c::need(id, "tutti_unique_id_make_among_hosts", "id");
    c::write_id(make_unique_id(MeetingPlace::among_hosts()), id);
  });
}

tutti_result tutti_unique_id_to_text(const tutti_unique_id* id, char* text) {
  return c::guarded([&] {
    const std::string from = to_string(c::id_of(id, "tutti_unique_id_to_text"));
    c::write_text(from, text, TUTTI_UNIQUE_ID_TEXT, nullptr, "tutti_unique_id_to_text");
  });
}

tutti_result tutti_unique_id_from_text(const char* text, tutti_unique_id* id) {
  return c::guarded([&] {
    c::need(text, "tutti_unique_id_from_text", "text");
    c::need(id, "tutti_unique_id_from_text", "id");
    c::write_id(unique_id_from_string(text), id);
  });
}

tutti_result tutti_comm_from_environment(const tutti_options* options, tutti_comm** comm) {
  return c::make_comm(comm, __func__, [&] {
    return Communicator::from_environment(c::options_of(options, "tutti_comm_from_environment"));
  });
}

tutti_result tutti_comm_create(const tutti_unique_id* id, int rank, int size,
                               const tutti_options* options, tutti_comm** comm) {
  return c::make_comm(comm, __func__, [&] {
    return Communicator::create(c::id_of(id, "tutti_comm_create"), rank, size,
                                c::options_of(options, "tutti_comm_create"));
  });
}

tutti_result tutti_comm_create_local(int size, const tutti_options* options, tutti_comm** comms) {
  return c::guarded([&] {
    c::need(comms, "tutti_comm_create_local", "comms");
    std::vector<Communicator> made =
        Communicator::create_local(size, c::options_of(options, "tutti_comm_create_local"));
    std::vector<std::unique_ptr<tutti_comm>> handles;
    for (Communicator& one : made) {
      handles.push_back(std::make_unique<tutti_comm>(tutti_comm{std::move(one)}));
    }
    for (std::size_t r = 0; r < handles.size(); ++r) comms[r] = handles[r].release();
  });
}

tutti_result tutti_comm_alone(const tutti_options* options, tutti_comm** comm) {
  return c::make_comm(comm, __func__, [&] {
    return Communicator::alone(c::options_of(options, "tutti_comm_alone"));
  });
}

tutti_result tutti_comm_split(tutti_comm* comm, int color, int key, const tutti_options* options,
                              tutti_comm** part) {
  const tutti_result result = c::make_of(
      comm, options, part, __func__, "part",
      [&](Communicator& of, const auto& changed) { return of.split(color, key, changed); });
  if (result == TUTTI_OK && !(*part)->communicator) {  // a negative color
    delete *part;
    *part = nullptr;
  }
  return result;
}

tutti_result tutti_comm_shrink(tutti_comm* comm, const int* excluded, size_t count,
                               const tutti_options* options, tutti_comm** rest) {
  return c::make_of(comm, options, rest, __func__, "rest",
                    [&](Communicator& of, const auto& changed) {
                      if (count > 0) c::need(excluded, "tutti_comm_shrink", "excluded");
                      return of.shrink(std::span(excluded, count), changed);
                    });
}

tutti_result tutti_comm_grow(tutti_comm* comm, const tutti_unique_id* id, int size,
                             const tutti_options* options, tutti_comm** larger) {
  return c::make_of(comm, options, larger, __func__, "larger",
                    [&](Communicator& of, const auto& changed) {
                      return of.grow(c::id_of(id, "tutti_comm_grow"), size, changed);
                    });
}

tutti_result tutti_comm_reconfigure(tutti_comm* comm, const char* const* handles, size_t count,
                                    uint64_t number, const tutti_options* options,
                                    tutti_comm** next) {
  return c::make_of(
      comm, options, next, __func__, "next", [&](Communicator& of, const auto& changed) {
        if (count > 0) c::need(handles, "tutti_comm_reconfigure", "handles");
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < count; ++i) {
          texts.emplace_back(&c::need(handles[i], "tutti_comm_reconfigure", "handles[i]"));
        }
        return of.reconfigure(texts, number, changed);
      });
}

tutti_result tutti_comm_handle(const tutti_comm* comm, char* text, size_t size, size_t* length) {
  return c::guarded([&] {
    c::write_text(c::communicator(comm, "tutti_comm_handle").handle(), text, size, length,
                  "tutti_comm_handle");
  });
}

tutti_result tutti_comm_transports(const tutti_comm* comm, char* text, size_t size,
                                   size_t* length) {
  return c::guarded([&] {
    c::write_text(c::communicator(comm, "tutti_comm_transports").transports(), text, size, length,
                  "tutti_comm_transports");
  });
}

int tutti_comm_rank(const tutti_comm* comm) {
  return comm != nullptr && comm->communicator ? comm->communicator.rank() : -1;
}

int tutti_comm_size(const tutti_comm* comm) {
  return comm != nullptr && comm->communicator ? comm->communicator.size() : -1;
}

tutti_result tutti_comm_error(const tutti_comm* comm) {
  return c::guarded([&] {
    const std::optional<Error> error = c::communicator(comm, "tutti_comm_error").error();
    return error ? c::failed(*error) : TUTTI_OK;
  });
}

tutti_result tutti_comm_abort(tutti_comm* comm, const char* reason) {
  return c::guarded(
      [&] { c::communicator(comm, "tutti_comm_abort").abort(reason != nullptr ? reason : ""); });
}

tutti_result tutti_comm_free(tutti_comm* comm) {
  if (comm == nullptr) return TUTTI_OK;
  return c::guarded([&] {
    if (comm->communicator) comm->communicator.destroy();
    delete comm;
  });
}

tutti_result tutti_comm_release_memory(tutti_comm* comm) {
  return c::guarded([&] { c::communicator(comm, "tutti_comm_release_memory").release_memory(); });
}

tutti_result tutti_comm_use_plan(tutti_comm* comm, const char* plan) {
  return c::guarded([&] {
    c::communicator(comm, "tutti_comm_use_plan")
        .use_plan(&c::need(plan, "tutti_comm_use_plan", "plan"));
  });
}
