"""ROS 2: `rg.ros2`. A package with a plug-in of ros2_control and a planner, generated for a task.

Importing this needs no ROS; `rigidgrad.ros2.node` needs `rclpy` when it runs.
"""

from rigidgrad.ros2.package import generate
from rigidgrad.ros2.planner import Finding, Planner

__all__ = ["Finding", "Planner", "generate"]
