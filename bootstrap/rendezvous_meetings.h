// The meetings that a rendezvous server holds: what members say, and what they are told.
//
// Ranks that have a unique id meet once; ranks that have each other's handles, by the number of an
// appointment. A meeting begins with the first word of a rank, and ends when all have the roster or
// one of them fails. The server (rendezvous_server.cpp) brings what members say, and the time.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/appointments.h"
#include "bootstrap/rendezvous_members.h"
#include "bootstrap/rendezvous_round.h"
#include "bootstrap/roll_call.h"

namespace tutti {

/// A round, and what its ranks are sent.
struct Meeting {
  RendezvousRound round;
  protocol::Buffer roster;              // once all have joined
  int hellos = 0;                       // that have come
  std::unique_ptr<RollCall> roll_call;  // where this rank is the first of a list of handles
};

class RendezvousMeetings {
 public:
  using Clock = Member::Clock;

  /// The server: it is asked, and told how meetings go.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual Clock::time_point now() const = 0;
    /// Whether somebody waits whom it cannot let in, as trouble() says.
    virtual bool is_in_trouble() const = 0;
    /// Nobody new comes in.
    virtual bool is_closing() const = 0;
    /// What may keep ranks from coming; "": nothing that is known.
    virtual const std::string& trouble() const = 0;
    /// Calls expire() when `descriptor` is readable.
    virtual void watch_roll_call(const FileDescriptor& descriptor) = 0;
    /// A meeting waits for some of its ranks.
    virtual void on_under_way() = 0;
    /// All of its ranks have joined.
    virtual void on_complete() = 0;
    /// All have met, or it has failed.
    virtual void on_over() = 0;
  };

  /// `appointments`: null where ranks meet by a unique id. All outlive this.
  RendezvousMeetings(Owner& owner, RendezvousMembers& members,
                     std::shared_ptr<Appointments> appointments)
      : owner_(owner), members_(members), appointments_(std::move(appointments)) {}

  /// A whole frame of member `who` is there.
  void hear(std::uint64_t who);
  /// A member is gone (RendezvousMembers::OnLost).
  void lost(const Member& member);
  /// This rank has been called to a meeting, or is in it no longer.
  void look_at_appointments();

  /// Ends meetings whose time is up, and asks for ranks that have not come.
  void expire();
  Clock::time_point next_wake() const;
  /// No meeting is under way.
  bool empty() const { return meetings_.empty(); }
  /// The meeting of the unique id has failed, and some of its ranks may still come.
  bool is_to_tell_of_failure() const;

 private:
  void join(std::uint64_t who);
  /// A rank will not come, and says why: so the others need not wait for it.
  void refuse(std::uint64_t who);
  /// The first rank of a meeting asks why this one does not come: where that is known, it is told;
  /// else as soon as it is, and that this process is there it sees by the connection.
  void answer_question(std::uint64_t who);
  /// `number`: of the appointment; 0: of a unique id.
  std::shared_ptr<Meeting> next_meeting(std::uint64_t number);
  void call_the_roll(const std::shared_ptr<Meeting>& meeting);
  void fail(const std::shared_ptr<Meeting>& meeting, const Error& why);
  /// Tells the ranks of a meeting how it stands, where that has changed.
  void settle(const std::shared_ptr<Meeting>& meeting);
  /// All have joined: tells each rank which rank it gets the roster from.
  void place(const std::shared_ptr<Meeting>& meeting);
  void end(const std::shared_ptr<Meeting>& meeting);

  Owner& owner_;
  RendezvousMembers& members_;
  const std::shared_ptr<Appointments> appointments_;
  std::list<std::shared_ptr<Meeting>> meetings_;  // that are not over
  // By number: meetings with ranks still to come; of a unique id, also one that has failed.
  std::map<std::uint64_t, std::shared_ptr<Meeting>> joining_;
  Clock::time_point in_trouble_since_ = Clock::time_point::max();  // max: it is not
  std::map<std::uint64_t, Error> failed_;           // appointments, for those that come late
  std::map<std::uint64_t, Appointment> questions_;  // by the member that has asked
};

}  // namespace tutti
