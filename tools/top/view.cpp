#include "tools/top/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tutti::top {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Wait, peer, seconds, call, fresh, started)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Member, communicator, identity, rank, size, here, job_rank, pid,
                                   age, calls, number, newest, calls_a_second, bytes_a_second,
                                   waited, waiting_share, futures, waits, refused, error, failure,
                                   error_age, left)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Process, pid, host, command, sleeps_in, cores, ranks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Start, pid, rank, size, job, place, seconds)

const Process* View::process(int pid) const {
  const auto found = std::ranges::find(processes, pid, &Process::pid);
  return found == processes.end() ? nullptr : &*found;
}

json to_json(const View& view) {
  json processes = json::array();
  for (const Process& p : view.processes) {
    processes.push_back(p);
    processes.back()["state"] = std::string(1, p.state);
  }
  return {{"host", view.host},
          {"processes", std::move(processes)},
          {"members", view.members},
          {"starts", view.starts},
          {"notes", view.notes}};
}

View view_from_json(std::string_view text) {
  try {
    const json all = json::parse(text);
    View view;
    view.host = all.at("host").get<std::string>();
    for (const json& p : all.at("processes")) {
      view.processes.push_back(p.get<Process>());
      const auto state = p.at("state").get<std::string>();
      if (!state.empty()) view.processes.back().state = state.front();
    }
    view.members = all.at("members").get<std::vector<Member>>();
    view.starts = all.at("starts").get<std::vector<Start>>();
    view.notes = all.at("notes").get<std::vector<std::string>>();
    for (const Member& m : view.members) {
      if (m.size < 1 || m.rank < 0 || m.rank >= m.size) throw Error(ErrorCode::system, "a rank");
    }
    return view;
  } catch (const std::exception& e) {
    throw Error(ErrorCode::system,
                fmt::format("what came is not a view of tutti top, of this version: {}", e.what()));
  }
}

}  // namespace tutti::top
