// `tutti top`: what the ranks of running jobs do, and which ranks hold the others up.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "tools/command_line/command.h"
#include "tools/command_line/number_in.h"
#include "tools/launcher_option.h"
#include "tools/output_of.h"
#include "tools/spawn.h"
#include "tools/terminal.h"
#include "tools/top/jobs.h"
#include "tools/top/picture.h"
#include "tools/top/stack.h"
#include "tools/top/watcher.h"

namespace tutti {
namespace {

constexpr char kFooter[] =
    "It looks at the memory that ranks keep anyway, so they need no option for it and notice\n"
    "nothing. It sees the jobs of its own user; root sees all.\n"
    "\"=>\" says who holds the others up. --stack shows where: py-spy (Python), eu-stack or gdb "
    "has\n"
    "to be installed. A rank whose calls take turns with other work \"runs\"; \"exposed\" is the "
    "share\n"
    "of the time that its callers wait. bytes/s counts collectives (the count of each call), no\n"
    "messages. docs/top.md says more.\n"
    "Examples:\n"
    "  tutti top                  every second, until Ctrl-C\n"
    "  tutti top --once --stack   one picture, and the stacks of who is to blame\n"
    "  tutti top 1234             the job of process 1234, or of what that has started\n"
    "  tutti top -H node1,node2   the ranks of several hosts together";

// Between two looks, for what changes in a second.
constexpr auto kShort = std::chrono::milliseconds(250);
constexpr auto kForHosts = std::chrono::seconds(15);
constexpr std::size_t kMostStacks = 4;
constexpr int kColumns = 100;  // where the output is no terminal

struct TopArguments {
  int job = 0;
  std::string hosts;
  LauncherOption launcher;
  bool once = false, json = false, prometheus = false, stack = false;
  double interval = 1;
};

/// Of a list with commas.
std::vector<std::string> hosts_in(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

/// What `tutti top` sees on other hosts, where the launcher starts it.
std::vector<top::View> views_of_hosts(const TopArguments& arguments) {
  const std::vector<std::string> connect = arguments.launcher.connect();
  const std::string tutti = arguments.launcher.tutti();
  const std::vector<std::string> hosts = hosts_in(arguments.hosts);
  std::vector<std::vector<std::string>> programs;
  for (const std::string& host : hosts) {
    if (host.front() == '-') {
      throw Error(ErrorCode::invalid_argument, fmt::format("-H: '{}' is no host", host));
    }
    programs.push_back(connect);
    const std::string path = arguments.launcher.is_ssh() ? shell_word(tutti) : tutti;
    programs.back().insert(programs.back().end(), {host, path, "top", "--json"});
    if (arguments.job != 0) programs.back().push_back(std::to_string(arguments.job));
  }
  const auto outputs = outputs_of(programs, kForHosts);
  std::vector<top::View> views;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const Output& o = outputs[h];
    try {
      if (o.status != 0) {
        throw Error(ErrorCode::system, fmt::format("{} ended with status {}: {}",
                                                   programs[h].front(), o.status, o.complaint));
      }
      const auto all = nlohmann::json::parse(o.text);
      for (const auto& view : all.at("hosts")) views.push_back(top::view_from_json(view.dump()));
    } catch (const std::exception& e) {
      top::View unseen;
      unseen.host = hosts[h];
      unseen.notes.push_back(fmt::format("host {} is not seen: {}", hosts[h], e.what()));
      views.push_back(std::move(unseen));
    }
  }
  return views;
}

std::string stacks_of(const std::vector<top::View>& views) {
  std::vector<top::Culprit> culprits = top::late_starters(views);
  for (top::Job& job : top::jobs_in(views)) {
    culprits.insert(culprits.end(), job.culprits.begin(), job.culprits.end());
  }
  std::set<int> done;
  std::string text;
  for (const top::Culprit& c : culprits) {
    for (const int pid : c.pids) {
      if (done.size() >= kMostStacks || !done.insert(pid).second) continue;
      text += fmt::format("\n--- process {} ---\n{}", pid, top::stack_of(pid));
    }
  }
  return text.empty() ? "\nnobody holds the others up: there is no stack to show\n" : text;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run_top(const TopArguments& arguments) {
  if (arguments.job != 0 && arguments.hosts.empty() && kill(arguments.job, 0) != 0 &&
      errno == ESRCH) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("top: there is no process {}", arguments.job));
  }
  // Ranks that wait may take all cores; root looks at them nevertheless.
  static_cast<void>(setpriority(PRIO_PROCESS, 0, -10));
  top::Watcher watcher(arguments.job);
  const bool far = !arguments.hosts.empty();
  const bool once = arguments.once || arguments.json || arguments.prometheus || arguments.stack;
  const bool screen = !once && isatty(1) != 0;
  const auto look = [&] {
    return far ? views_of_hosts(arguments) : std::vector<top::View>{watcher.look()};
  };
  if (!far) {
    watcher.look();
    std::this_thread::sleep_for(kShort);
  }
  for (;;) {
    const std::vector<top::View> views = look();
    if (arguments.json) {
      print(top::json_text(views));
    } else if (arguments.prometheus) {
      print(top::prometheus_text(views));
    } else {
      const int columns = terminal_columns();
      const std::string text = top::picture(views, columns > 0 ? columns : kColumns);
      print(screen ? "\033[H\033[2J" + text : text);
    }
    if (arguments.stack) print(stacks_of(views));
    if (once || std::ferror(stdout) != 0) return;
    if (!screen) print("\n");
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
  }
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto arguments = std::make_shared<TopArguments>();
  command.add_option("PID", arguments->job, "Only the job of this process, or of its children")
      ->type_name("")
      ->check(CLI::Range(1, 1 << 30).description(""));
  command.add_flag("--once", arguments->once, "One picture");
  command.add_option("-i,--interval", arguments->interval, "Between two pictures [1]")
      ->type_name("SECONDS")
      ->check(number_in(0.1, 86400, "seconds"));
  auto* json = command.add_flag("--json", arguments->json, "Once, as JSON");
  auto* prometheus =
      command.add_flag("--prometheus", arguments->prometheus, "Once, as Prometheus's text")
          ->excludes(json);
  command.add_flag("--stack", arguments->stack, "Once, with the stacks of who holds the others up")
      ->excludes(json)
      ->excludes(prometheus);
  command.add_option("-H,--host", arguments->hosts, "The ranks of these hosts: node1,node2")
      ->type_name("LIST");
  arguments->launcher.add_to(command);
  command.footer(kFooter);
  command.callback([arguments] { run_top(*arguments); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("top", tutti::define, argc, argv); }
