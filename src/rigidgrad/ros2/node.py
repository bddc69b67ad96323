"""The planner as a ROS 2 node. `rclpy` and message packages are those of the ROS installation.

mode "link": serves the plug-in through shared memory. "effort": a state in, efforts out, once per
period. "trajectory": the newest plan out, once per plan, for a joint trajectory controller.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.link import Link, Served, serve
from rigidgrad.ros2.planner import Planner
from rigidgrad.tasks import load_task

MODES = ("link", "effort", "trajectory")


class Node:
    """Topics around a planner; `ros` is an `rclpy` node.

    Parameters: task, mode, link, description. Topics: joint_states and ~/target in, ~/commands or
    ~/trajectory and /diagnostics out. The robot is that of the task; a robot_description, from its
    topic or the parameter, is compared with it, and the node does not control while they differ.
    """

    def __init__(self, ros: Any, package: str = "rigidgrad", task: str = ""):
        from diagnostic_msgs.msg import DiagnosticArray
        from geometry_msgs.msg import PoseStamped
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Float64MultiArray, String
        from trajectory_msgs.msg import JointTrajectory

        self.ros = ros

        def parameter(name: str, default: str) -> str:
            return str(ros.declare_parameter(name, default).value)

        self.mode = parameter("mode", "effort")
        if self.mode not in MODES:
            raise InputError(f"mode is one of {', '.join(MODES)}, not {self.mode!r}")
        self.link_name = parameter("link", package)
        path = parameter("task", _in_share(package, task) if task else "")
        if not path:
            raise InputError("the parameter task names a task file: --ros-args -p task:=task.toml")
        self.planner = Planner(load_task(path))
        # plans under way may not be changed by another thread's target
        self.guard = threading.Lock()
        self.wrong = ""  # about robot_description
        self.missed = 0
        self._newest: tuple[Any, float] | None = None
        self._solves = 0
        description = parameter("robot_description", "")
        if description:
            self._describe(description)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        ros.create_subscription(String, "robot_description", self._on_description, latched)
        ros.create_subscription(PoseStamped, "~/target", self._on_target, 1)
        self._diagnostics = ros.create_publisher(DiagnosticArray, "/diagnostics", 10)
        ros.create_timer(1.0, self.report)
        if self.mode != "link":
            ros.create_subscription(JointState, "joint_states", self._on_state, 1)
            self._out = (
                ros.create_publisher(Float64MultiArray, "~/commands", 1)
                if self.mode == "effort"
                else ros.create_publisher(JointTrajectory, "~/trajectory", 1)
            )
            ros.create_timer(self.planner.period, self.tick)

    # --- in ---------------------------------------------------------------------------------------

    def _on_state(self, message: Any) -> None:
        x = self.planner.state(message.name, message.position, message.velocity)
        if x is not None:
            self._newest = (x, _seconds(message.header.stamp))

    def _on_target(self, message: Any) -> None:
        p, o = message.pose.position, message.pose.orientation
        with self.guard:
            used = self.planner.aim(message.header.frame_id, (p.x, p.y, p.z), (o.x, o.y, o.z, o.w))
        if not used:
            self.ros.get_logger().warning(self.planner.trouble)

    def _on_description(self, message: Any) -> None:
        self._describe(message.data)

    def _describe(self, urdf: str) -> None:
        self.wrong = self.planner.described(urdf)
        if self.wrong:
            self.ros.get_logger().error(f"{self.wrong}: nothing is controlled")

    # --- out --------------------------------------------------------------------------------------

    def now(self) -> float:
        return float(self.ros.get_clock().now().nanoseconds) * 1e-9

    def tick(self) -> None:
        """Once a period: a control, or the plan, is published."""
        if self.wrong or self._newest is None:
            return
        begin = time.perf_counter()
        x, measured_at = self._newest
        with self.guard:
            u = self.planner.control(x, self.now(), measured_at)
            if self.mode == "effort":
                self._publish_effort(u)
            elif self.planner.mpc.log.solves > self._solves:
                self._solves = self.planner.mpc.log.solves
                self._publish_trajectory()
        self.missed += time.perf_counter() - begin > self.planner.period

    def _publish_effort(self, u: Any) -> None:
        from std_msgs.msg import Float64MultiArray

        message = Float64MultiArray()
        message.data = [float(value) for value in u]
        self._out.publish(message)

    def _publish_trajectory(self) -> None:
        from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

        message = JointTrajectory()
        message.header.stamp = self.ros.get_clock().now().to_msg()
        message.joint_names = list(self.planner.joints)
        for t, q, v, u in zip(*self.planner.plan(), strict=True):
            point = JointTrajectoryPoint()
            point.positions, point.velocities, point.effort = q.tolist(), v.tolist(), u.tolist()
            point.time_from_start.sec = int(t)
            point.time_from_start.nanosec = round(1e9 * (t - int(t)))
            message.points.append(point)
        self._out.publish(message)

    def report(self) -> None:
        """Once a second: what happened."""
        from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

        array = DiagnosticArray()
        array.header.stamp = self.ros.get_clock().now().to_msg()
        for finding in self.planner.diagnostics(self.wrong, self.missed):
            status = DiagnosticStatus()
            status.level = bytes([finding.level])
            status.name, status.message = finding.name, finding.message
            status.hardware_id = self.planner.robot.name
            status.values = []
            for key, value in finding.values.items():
                pair = KeyValue()
                pair.key, pair.value = key, value
                status.values.append(pair)
            array.status.append(status)
        self._diagnostics.publish(array)

    # --- the plug-in ------------------------------------------------------------------------------

    def serve(self, until: Any = None) -> Served:
        """Answers the plug-in's states until it goes; of one that comes again, likewise."""

        def step(x: Any, t: float) -> Any:
            with self.guard:
                self.planner.states += 1
                if self.wrong:
                    return x[: self.planner.robot.nv] * float("nan")  # which the plug-in refuses
                return self.planner.control(x, t)

        n = self.planner.robot.nv
        with Link(self.link_name, "controller", states=2 * n, controls=n) as link:
            served = serve(step, link, deadline=self.planner.period, until=until)
        self.missed += served.late
        return served


def main(arguments: list[str] | None = None, *, package: str = "rigidgrad", task: str = "") -> int:
    """Runs the node until ROS ends it; the exit code."""
    import rclpy

    rclpy.init(args=arguments)
    ros = rclpy.create_node("mpc" if package == "rigidgrad" else package)
    try:
        node = Node(ros, package, task)
        if node.mode == "link":
            # messages on a thread of their own; the loop of states on this one
            spinning = threading.Thread(target=rclpy.spin, args=(ros,), daemon=True)
            spinning.start()
            while rclpy.ok():
                node.serve(until=lambda _: not rclpy.ok())
        else:
            rclpy.spin(ros)
    except RigidgradError as error:
        ros.get_logger().error(str(error))
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        ros.destroy_node()
        if rclpy.ok():
            rclpy.shutdown()
    return 0


def _in_share(package: str, task: str) -> str:
    """The task that is installed with the package."""
    from ament_index_python.packages import get_package_share_directory

    return str(Path(get_package_share_directory(package)) / "config" / task)


def _seconds(stamp: Any) -> float:
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)
