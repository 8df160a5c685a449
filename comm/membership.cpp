// Communicators that change their ranks: newcomers and members meet by handles, or by a unique id,
// and form the next one. A rank stays connected to the peers that it knows already (membership.h).
#include "comm/membership.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "bootstrap/meeting_place.h"
#include "bootstrap/rendezvous_protocol.h"
#include "comm/device_call.h"
#include "comm/elastic_message.h"
#include "comm/engine.h"
#include "comm/impl.h"
#include "comm/session.h"
#include "core/as_error.h"
#include "core/settings.h"
#include "transport/network/network.h"
#include "transport/sockets/own_addresses.h"

namespace tutti {
namespace {

/// Where a rank that has met no other host yet listens for others.
std::string address_for_strangers(const std::string& interfaces) {
  // The address that leads to the launcher of an elastic job leads to its hosts, also where that is
  // a loopback one, as all of them are this one.
  const std::string launcher = setting_text("TUTTI_UNIQUE_ID");
  const bool is_chosen = !setting_text("TUTTI_ADDRESS").empty();
  if (setting_integer(kElasticVariable) < 0 || launcher.empty() || is_chosen) {
    return place_among_hosts({}, interfaces).address;
  }
  return host_text(
      own_address(protocol::decode(unique_id_from_string(launcher)).address, interfaces));
}

}  // namespace

Membership::Membership(const Options& options)
    : host_id(options.host_id),
      interfaces(options.interfaces),
      host_peers(std::make_shared<HostPeers>(options.host_id)),
      engine(std::make_shared<Engine>()) {}

MeetingPoint& Membership::meeting_point() {
  const std::lock_guard lock(mutex_);
  if (meeting_point_ == nullptr) {
    const auto address = network == nullptr ? std::nullopt : network->address().get();
    meeting_point_ = std::make_unique<MeetingPoint>(address ? host_text(*address)
                                                            : address_for_strangers(interfaces));
  }
  return *meeting_point_;
}

Communicator Communicator::alone(const Options& options) {
  return std::move(create_local(1, options).front());
}

std::string Communicator::handle() const try {
  const Impl& i = impl();
  i.check_process();
  return i.membership->meeting_point().handle().text();
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Communicator Communicator::reconfigure(std::span<const std::string> handles, std::uint64_t number,
                                       const std::optional<Options>& given) try {
  Impl& i = impl();
  const Options& options = given ? *given : i.options;
  i.check_process();
  refuse_to_meet("reconfigure()");
  options.check();
  const Options mine = i.inherited(options);
  MeetingPoint& meeting_point = i.membership->meeting_point();
  Session session;
  try {
    session = open_session(meeting_point.reunion(handles, number), mine, i.membership);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("reconfigure() with number {}: {}", number, e.what()),
                e.rank());
  }
  meeting_point.has_met(number);
  auto next = std::make_unique<Impl>(std::move(session), mine);
  i.end(fmt::format("rank {} was reconfigured (number {}): it goes on in another communicator",
                    rank(), number));
  return Communicator(std::move(next));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Communicator Communicator::grow(const UniqueId& id, int size,
                                const std::optional<Options>& given) try {
  Impl& i = impl();
  const Options& options = given ? *given : i.options;
  i.check_process();
  refuse_to_meet("grow()");
  options.check();
  if (size <= this->size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("grow() to {} ranks, but there are {} already: the new size counts "
                            "members and newcomers",
                            size, this->size()));
  }
  const Options mine = i.inherited(options);
  return Communicator(
      std::make_unique<Impl>(open_session(id, rank(), size, mine, i.membership), mine));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

void Communicator::Impl::end(const std::string& why) {
  if (!group->liveness().failed()) {
    group->liveness().fail({ErrorCode::aborted, group->rank(), why});
  }
  abort_on_device(*group);
}

}  // namespace tutti
